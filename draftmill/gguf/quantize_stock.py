"""Quantizing with llama.cpp's own llama-quantize as a subprocess: any type it knows, its words kept."""

import re
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill.digest import sha256_file
from draftmill.gguf.header import read_header
from draftmill.gguf.mixes import Fallback
from draftmill.gguf.quantize_native import already_quantized
from draftmill.outcome import BadConfiguration, MillError, Refusal, Refused, Temporary
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file

COMMAND = "llama-quantize"
BUFFER_MIB = 64
"""Rows in memory at a time, where the version can be told; the bytes do not depend on it."""
TIMEOUT_S = 3600.0
HELP_TIMEOUT_S = 60.0
_LOG_LINES = 2000

_PLAIN_TYPE = re.compile(r"[A-Za-z0-9_]+")
_VERSION = re.compile(r"^version: (.+?)\s*$|^main: build = (.+?)\s*$")
_TENSOR = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]\s+(\S+)")
_FALLBACK = re.compile(
    r"(\S+)\s+- ncols\s+(\d+) not divisible by\s+(\d+) \(required for type\s+(\w+)\).*falling back to\s+(\w+)"
)


@dataclass(frozen=True)
class StockQuantizer:
    """A llama-quantize that answers. digest: SHA-256 of the program itself, not of the libraries it loads."""

    command: tuple[str, ...]
    digest: str
    bounded: bool


@dataclass(frozen=True)
class StockQuantized:
    """version: as the tool states it, "" when it does not; log: the end of what it printed, both streams."""

    fallbacks: tuple[Fallback, ...]
    version: str
    log: str


def find_quantizer(command: Sequence[str] | None = None) -> StockQuantizer:
    """command: how to start it, None for the one on PATH. Raises BadConfiguration when there is none or it dies."""
    found = tuple(command) if command else ((path,) if (path := shutil.which(COMMAND)) else ())
    if not found:
        raise BadConfiguration(
            f"{COMMAND} is not on PATH: install llama.cpp's tools (Debian: llama.cpp-tools), give its path, "
            "or use --quantizer native.",
            code="quantize.stock_missing",
            where=COMMAND,
        )
    try:
        done = subprocess.run(
            [*found, "--help"], capture_output=True, text=True, errors="replace", timeout=HELP_TIMEOUT_S, check=False
        )
        text = done.stdout + done.stderr
        if "usage" not in text:
            raise OSError(f"it ended with {done.returncode} and printed {text[-300:]!r}")
        return StockQuantizer(found, sha256_file(Path(found[-1])), "--max-buffer-size" in text)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadConfiguration(
            f"{found[-1]} does not run here: {error}. Install llama.cpp's tools again, or use --quantizer native.",
            code="quantize.stock_unusable",
            where=found[-1],
        ) from error


def quantize_stock(
    quantizer: StockQuantizer,
    source: Path,
    target: Path,
    kind: str,
    *,
    threads: int = 2,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
) -> StockQuantized:
    """kind: any type that llama-quantize --help names. progress counts tensors.

    Raises Refused (quantized input; a type that it does not know or that needs an importance matrix), Temporary after
    `timeout_s` or when the system ended it, MillError with its last lines otherwise. Nothing is left at `target` then.
    """
    if not _PLAIN_TYPE.fullmatch(kind):
        raise _unknown_type(kind)
    if refusals := already_quantized(read_header(source), source.name):
        raise Refused(*refusals)
    options = ["--max-buffer-size", str(BUFFER_MIB)] if quantizer.bounded else []
    with whole_file(target) as beside:
        command = [*quantizer.command, *options, str(source), str(beside), kind, str(threads)]
        lines, status, expired = _run(command, timeout_s, progress)
        if expired:
            raise Temporary(
                f"llama-quantize was stopped after {timeout_s:.0f} s; give it more time or threads.",
                code="quantize.stock_timeout",
            )
        if status or not beside.is_file():
            raise _failure(kind, status, lines)
        _require_whole(beside)
    versions = (match[1] or match[2] for line in lines if (match := _VERSION.match(line)))
    return StockQuantized(parse_fallbacks(lines), next(versions, ""), "\n".join(lines))


def _require_whole(path: Path) -> None:
    """b11669 pads tensors to 32 bytes even where the file's own general.alignment says other, and exits with 0."""
    try:
        read_header(path)
    except Refused as refused:
        raise MillError(
            f"llama-quantize ended well but its file cannot be read ({refused.refusals[0]}); use --quantizer native.",
            code="quantize.stock_unreadable",
        ) from refused


def parse_fallbacks(lines: Sequence[str]) -> tuple[Fallback, ...]:
    """Its warnings of the form: NAME - ncols N not divisible by B (required for type T) -> falling back to U."""
    return tuple(
        Fallback(
            match[1],
            _type_name(match[4]),
            _type_name(match[5]),
            f"rows of {match[2]} do not divide into blocks of {match[3]}",
        )
        for line in lines
        if (match := _FALLBACK.search(line))
    )


def _type_name(stock: str) -> str:
    """q5_0 -> Q5_0, q4_K -> Q4_K: gguf's names for the tool's."""
    return stock.upper()


def _run(command: list[str], timeout_s: float, progress: Progress) -> tuple[list[str], int, bool]:
    """Both streams' last lines, the exit status, and whether time ran out."""
    lines: deque[str] = deque(maxlen=_LOG_LINES)
    expired = threading.Event()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:

        def stop() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(timeout_s, stop)
        timer.start()
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                if match := _TENSOR.match(line):
                    progress(match[3], int(match[1]), int(match[2]))
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    return list(lines), process.returncode, expired.is_set()


def _failure(kind: str, status: int, lines: list[str]) -> MillError:
    text = "\n".join(lines)
    if "importance matrix" in text or "requires an imatrix" in text:
        return Refused(
            Refusal(
                "quantize.needs_imatrix",
                "type",
                kind,
                "a type that needs no importance matrix",
                "llama-quantize makes this type only with an importance matrix, which the mill does not compute; "
                "choose a larger type.",
            )
        )
    if "invalid ftype" in text:
        return _unknown_type(kind)
    telling = " | ".join(line for line in lines if line)[-600:]
    if status < 0:
        return Temporary(
            f"llama-quantize was ended by signal {-status}; the machine may be short of memory. Last lines: {telling}",
            code="quantize.stock_killed",
        )
    return MillError(f"llama-quantize ended with {status}. Last lines: {telling}", code="quantize.stock_failed")


def _unknown_type(kind: str) -> Refused:
    return Refused(
        Refusal(
            "quantize.type_unknown",
            "type",
            kind,
            "a type that llama-quantize --help lists",
            "This llama-quantize does not know the type; choose one of its list.",
        )
    )
