"""llama.cpp's convert_hf_to_gguf.py as a process of its own: its progress told, its words kept, its end explained."""

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections import deque
from pathlib import Path

from draftmill.gguf.stock_failures import explain
from draftmill.gguf.stock_script import StockScript
from draftmill.outcome import BadConfiguration, Temporary
from draftmill.progress import Progress, silent

TIMEOUT_S = 3600.0
_LOG_LINES = 5000
_PERCENT = re.compile(r"^Writing:\s+(\d+)%\|")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "OMP_NUM_THREADS")
"""Of this process's environment: nothing that could be a credential."""


def run_stock(
    script: StockScript,
    folder: Path,
    out: Path,
    *options: str,
    log: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
) -> None:
    """Converts `folder` to `out`; log: where both its streams go when it fails, without the progress bar.

    Raises Temporary after `timeout_s`, BadConfiguration where it does not start, and what `explain` makes of a failure.
    """
    command = [str(script.python), str(script.path), str(folder), "--outfile", str(out), *options]
    status, expired, said = _run(command, timeout_s, progress)
    if expired:
        raise Temporary(f"The converter was stopped after {timeout_s:.0f} s.", code="convert.stock_timeout")
    if status or not out.is_file():
        if log:
            log.write_text("\n".join(said) + "\n")
        if not status:
            raise BadConfiguration(
                f"{' '.join(command[:2])} ended well and wrote nothing; is it llama.cpp's convert_hf_to_gguf.py?",
                code="convert.stock_unusable",
                where=str(script.path),
            )
        raise explain(status, said)


def _run(command: list[str], timeout_s: float, progress: Progress) -> tuple[int, bool, list[str]]:
    """(status, whether it took too long, what it said)."""
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
    return process.returncode, expired.is_set(), list(lines)
