"""Conversion by llama.cpp's own convert_hf_to_gguf.py as a subprocess: any model it knows, its words kept.

What it writes is then given the same keys of origin as the native converter's output (see `metadata`).
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from draftmill.gguf.convert_native import CONFIG_LIMIT, OUTTYPES, Conversion
from draftmill.gguf.header import read_header
from draftmill.gguf.merged_folder import merged_folder
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stamp import stamp
from draftmill.gguf.stock_failures import explain
from draftmill.gguf.stock_script import StockScript
from draftmill.intake.bounded_json import read_object
from draftmill.outcome import BadConfiguration, Refusal, Refused, Temporary
from draftmill.progress import Progress, silent
from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.whole_file import whole_file

TIMEOUT_S = 3600.0
_LOG_LINES = 5000
_PERCENT = re.compile(r"^Writing:\s+(\d+)%\|")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
"""Of this process's environment: nothing that could be a credential."""


@dataclass(frozen=True)
class StockRun:
    """How the subprocess ended; `log` holds both its streams without the progress bar."""

    status: int
    expired: bool
    log: list[str] = field(repr=False)


def convert_stock(
    model: Path,
    tokenizer: Path,
    out: Path,
    *,
    outtype: str,
    provenance: Provenance,
    script: StockScript,
    log: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
) -> Conversion:
    """Writes `out` from the folders `model` and `tokenizer`; `log`: where the converter's own words go when it fails.

    Raises Refused for an input that it cannot take, BadConfiguration when it does not run here, Temporary after
    `timeout_s` or when the system ended it, MillError with its last lines otherwise. Nothing is left at `out` then.
    """
    if outtype not in OUTTYPES:
        raise BadConfiguration(f"Output type {outtype!r} is unknown; choose one of {OUTTYPES}.", code="convert.outtype")
    config = read_object(model / "config.json", "config.json", CONFIG_LIMIT)
    _check_tokenizer(tokenizer, config.get("vocab_size"))
    raw = out.with_name("converted.partial")
    try:
        # The converter decides some things by the folder's name, which has to be the repository's.
        with merged_folder(model, tokenizer, provenance.name) as folder:
            command = [str(script.python), str(script.path), str(folder), "--outfile", str(raw), "--outtype", outtype]
            run = _run(command, timeout_s, progress)
        if run.expired:
            raise Temporary(f"The converter was stopped after {timeout_s:.0f} s.", code="convert.stock_timeout")
        if run.status or not raw.is_file():
            if log:
                log.write_text("\n".join(run.log) + "\n")
            raise explain(run.status, run.log)
        header = read_header(raw)
        with whole_file(out) as beside:
            written = stamp(raw, beside, provenance=provenance, converter=script.name, model=model, config=config)
    finally:
        raw.unlink(missing_ok=True)
    return Conversion(script.name, len(header.tensors), written.weights, written.size)


def _check_tokenizer(folder: Path, rows: object) -> None:
    """Before the converter starts: its own message depends on the version of transformers."""
    if not (folder / "tokenizer.json").is_file():
        if (folder / "tokenizer.model").is_file():
            return
        raise Refused(
            Refusal(
                "convert.tokenizer_missing",
                "tokenizer.json",
                "absent",
                "tokenizer.json or tokenizer.model",
                "The model comes without its tokenizer; name a donor with --tokenizer-from.",
            )
        )
    highest = read_tokenizer(folder).highest
    if not isinstance(rows, int) or highest >= rows:
        raise Refused(
            Refusal(
                "convert.tokenizer_rows",
                "tokenizer.json",
                highest,
                f"below vocab_size {rows}",
                "The tokenizer has ids that the embedding has no row for; it is not this model's tokenizer.",
            )
        )


def _run(command: list[str], timeout_s: float, progress: Progress) -> StockRun:
    lines: deque[str] = deque(maxlen=_LOG_LINES)
    expired = threading.Event()
    with tempfile.TemporaryDirectory(prefix="draftmill-home-") as home:
        environment = {key: os.environ[key] for key in _KEPT_VARIABLES if key in os.environ}
        environment |= {"HOME": home, "HF_HOME": home, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        environment |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise BadConfiguration(
                f"{command[0]} does not start: {error}. Name an interpreter with torch and transformers "
                "(--stock-python), or use --converter native.",
                code="convert.stock_unusable",
                where=command[0],
            ) from error

        def stop() -> None:
            expired.set()
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout_s, stop)
        timer.start()
        with process:
            try:
                # Text mode ends a line at a carriage return too, so that each step of the progress bar is one.
                for line in process.stdout or ():
                    if match := _PERCENT.match(line):
                        progress("converting", int(match[1]), 100)
                    elif line.strip():
                        lines.append(line.rstrip())
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                timer.cancel()
    return StockRun(process.returncode, expired.is_set(), list(lines))


def stock_script(path: Path | str | None, python: Path | str | None = None) -> StockScript:
    """The converter that the caller, or else the image's environment, names.

    Raises BadConfiguration when none is named or it is not a file.
    """
    path = path or os.environ.get("DRAFTMILL_STOCK_CONVERTER")
    python = python or os.environ.get("DRAFTMILL_STOCK_PYTHON") or sys.executable
    if not path or not Path(path).is_file():
        raise BadConfiguration(
            f"llama.cpp's convert_hf_to_gguf.py is not at {path}: name it with --stock-converter, use the stock image "
            "(--runner docker), or use --converter native.",
            code="convert.stock_missing",
            where=str(path),
        )
    return StockScript(Path(path), Path(python))
