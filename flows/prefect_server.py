"""The Prefect server a command talks to: the one PREFECT_API_URL names, else a private one it starts and stops.

Import this before prefect: prefect reads its settings when it is imported.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from draftmill.outcome import Unavailable

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_CLI_PROMPT": "false",
    # The run's own display speaks on the terminal; everything still goes to the server's log of the run.
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
}
PRIVATE = "DRAFTMILL_PREFECT_PRIVATE"
"""Set while the server is this command's own: what is held on it is held by this command or by nobody."""
START_S = 90
LOOPBACK = ("127.0.0.1", "localhost")


@contextmanager
def prefect_server(state: Path) -> Iterator[str]:
    """Yields the API URL; sets this process's Prefect settings. `state` holds the private server's database and log."""
    os.environ.update(QUIET)
    url = os.environ.get("PREFECT_API_URL")
    if url:
        os.environ.setdefault("PREFECT_HOME", str(state / "client"))
        _await(url, None, Path("the named server"))
        yield url
        return
    with _home(state) as home:
        os.environ["PREFECT_HOME"] = str(home)
        port = _free_port()
        url = f"http://127.0.0.1:{port}/api"
        log = home / "server.log"
        with log.open("w") as output, _loopback_without_proxy():
            server = _start(port, output)
            try:
                _await(url, server, log)
                os.environ |= {"PREFECT_API_URL": url, PRIVATE: "1"}
                yield url
            finally:
                _drain()
                for name in ("PREFECT_API_URL", PRIVATE):
                    os.environ.pop(name, None)
                _stop(server)


@contextmanager
def _home(state: Path) -> Iterator[Path]:
    """A PREFECT_HOME no other command uses now: two servers on one SQLite file would block each other."""
    for number in range(1, 100):
        home = state / ("prefect" if number == 1 else f"prefect-{number}")
        home.mkdir(parents=True, exist_ok=True)
        with (home / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield home
            return
    raise Unavailable(f"a hundred Prefect servers run below {state}: end the commands that hold them")


@contextmanager
def _loopback_without_proxy() -> Iterator[None]:
    """A proxy that the environment names is not asked for this host, and for what it was not asked before."""
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    # Clients take the one name where it is set, else the other: what stands in one alone counts in both.
    for name, other in zip(before, reversed(before), strict=True):
        given = before[name] if before[name] is not None else before[other]
        # "*" is everything only where it stands alone.
        if (given or "").strip() != "*":
            os.environ[name] = ",".join([*filter(None, [given]), *LOOPBACK])
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


_BOUND_TO_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
os.execv(sys.executable, [sys.executable, "-m", "prefect", *sys.argv[2:]])
"""


def _start(port: int, output: IO[str]) -> subprocess.Popen[bytes]:
    arguments = ["server", "start", "--host", "127.0.0.1", "--port", str(port), "--no-services"]
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HF_TOKEN", "HUGGING_FACE", "DRAFTMILL_SIGN"))
    }
    return subprocess.Popen(
        [sys.executable, "-c", _BOUND_TO_PARENT, str(os.getpid()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )


def _await(url: str, server: subprocess.Popen[bytes] | None, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as answer:  # noqa: S310
            if answer.status == 200:
                return
        if server and server.poll() is not None:
            raise Unavailable(f"the Prefect server ended with exit code {server.returncode}; its log is {log}")
        if server is None and time.monotonic() > deadline - START_S + 10:
            raise Unavailable(f"no Prefect server answers at PREFECT_API_URL={url}: start it, or unset the variable")
        time.sleep(0.1)
    raise Unavailable(f"the Prefect server did not come up within {START_S} s; its log is {log}")


def _drain() -> None:
    """Sends what the client still holds; else it complains at exit that the server is gone."""
    if "prefect" not in sys.modules:
        return
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (APILogWorker, EventsWorker):
        worker.drain_all(timeout=5)


def _stop(server: subprocess.Popen[bytes]) -> None:
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            server.wait(timeout=8)
            return
