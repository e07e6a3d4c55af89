"""Jobs as plain processes: the default where no container engine is asked for.

The job runs below `jobs.supervisor`, whose standard input is a pipe we hold: when this process dies, however it dies,
the pipe closes and the supervisor ends the job. The environment is built from nothing, so no credential travels.
"""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any

from draftmill.measurement.device.lock import LOCKS
from draftmill.whole_file import write_whole
from flows.code_digest import code_digest
from flows.runners.endings import Ending, read_result, stopped
from flows.runners.lines import LineEvents
from flows.runners.runner import Events, Limits
from jobs.contract import Request, Result

PASSED_ON = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TZ",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    LOCKS,
)
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
ROOT = Path(__file__).resolve().parents[2]


class ProcessRunner:
    name = "process"

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        for child in list(self._children):
            _close(child)

    def code_digest(self, job: str, parameters: dict[str, Any]) -> str:
        return code_digest(job)

    def run(
        self,
        job: str,
        folder: Path,
        *,
        inputs: dict[str, Path],
        parameters: dict[str, Any],
        secrets: dict[str, Path],
        limits: Limits,
        events: Events,
    ) -> Result:
        if self._stopped:
            return stopped(job)
        request = Request(job=job, inputs=inputs, parameters=parameters, secrets=secrets)
        write_whole(folder / "request.json", request.model_dump_json(indent=1))
        (folder / "result.json").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="draftmill-") as scratch:
            child = subprocess.Popen(
                [sys.executable, "-m", "jobs.supervisor", job, str(folder.resolve()), str(limits.timeout_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(limits, scratch),
                cwd=scratch,
                start_new_session=True,
            )
            readers = [
                threading.Thread(target=_read, args=(child.stdout, LineEvents(events, structured=True)), daemon=True),
                threading.Thread(target=_read, args=(child.stderr, LineEvents(events, structured=False)), daemon=True),
            ]
            self._children.add(child)
            for reader in readers:
                reader.start()
            try:
                if not self._stopped:
                    child.wait()
            finally:
                _close(child)
                child.wait()
                self._children.discard(child)
                for reader in readers:
                    reader.join(timeout=5)
        if self._stopped:
            return stopped(job)
        return read_result(job, folder, Ending(child.returncode), limits)


def _environment(limits: Limits, scratch: str) -> dict[str, str]:
    names = PASSED_ON + (PROXIES if limits.network else ())
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": scratch,
        "TMPDIR": scratch,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
    }


def _close(child: subprocess.Popen[bytes]) -> None:
    """The end of the pipe, at which the supervisor ends the job."""
    if child.stdin:
        child.stdin.close()


def _read(stream: IO[bytes] | None, lines: LineEvents) -> None:
    while stream and (data := stream.read1(1 << 16)):  # type: ignore[attr-defined]
        lines.feed(data)
    lines.close()
