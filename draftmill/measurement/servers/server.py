"""A llama-server that lives as long as its block and no longer."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from draftmill.measurement.servers.capped_log import CappedLog
from draftmill.measurement.servers.client import Client
from draftmill.measurement.servers.flags import Settings, check_environment, clean_environment, command_line, read_help
from draftmill.measurement.servers.launch import launched
from draftmill.measurement.servers.leftovers import labels
from draftmill.measurement.servers.live_process import (
    cpu_seconds,
    is_loopback,
    listening_sockets,
    memory_bytes,
    waited_seconds,
)
from draftmill.measurement.servers.providers import Provider, What, check_program, observe
from draftmill.outcome import BadConfiguration, MillError

_POLL_S = 0.05
_GRACE_S = 2.0
_KILL_S = 10.0
_CRASH_S = 2.0


class ServerError(MillError):
    """The server did not serve.

    `code`: server.start (it ended before it was ready), server.start_deadline, server.crashed, server.run_deadline,
    server.log_flood, server.not_loopback, server.wrapper, server.stays; `log`: the end of the server's own log.
    """

    def __init__(self, sentence: str, *, code: str, log: str) -> None:
        super().__init__(f"{sentence}; the server's log ends with: {log or '(nothing)'}", code=code)
        self.log = log


class Server:
    """One running llama-server; a context manager, ready to serve inside the block.

    run: the label of whose server this is. Deadlines in seconds: until ready, and for the whole block. `log_limit` in
    bytes: a server that says more is ended.

    Whatever ends this process, SIGKILL included, ends the server: the kernel ties it to the *thread* that enters the
    block, so that thread has to stay. Linux only.
    Raises ServerError, BadConfiguration, and Refused for settings the binary cannot be told.
    """

    def __init__(
        self,
        provider: Provider,
        settings: Settings,
        *,
        run: str,
        start_deadline_s: float = 300,
        run_deadline_s: float = 7200,
        request_timeout_s: float = 300,
        log_limit: int = 64 << 20,
    ) -> None:
        self._provider = provider
        self._settings = settings
        self._run = run
        self._start_deadline_s = start_deadline_s
        self._run_deadline_s = run_deadline_s
        self._request_timeout_s = request_timeout_s
        self._log_limit = log_limit
        self._cause: tuple[str, str] | None = None
        self._is_starting = True
        self._ending = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: CappedLog | None = None
        self._timer: threading.Timer | None = None
        self.port = 0
        self.client = Client(0)
        self.what: What

    def __enter__(self) -> Self:
        if sys.platform != "linux":
            raise BadConfiguration("Measuring needs Linux: only it ends a server with its parent.", code="server.linux")
        provider = self._provider
        check_program(provider)
        check_environment(provider.environment)
        help_ = read_help(provider.command, provider.digest(), provider.environment)
        flags = command_line(help_, self._settings)
        try:
            self._start([*provider.command, *flags, "--host", "127.0.0.1", "--port", "0"])
            self._wait_until_ready(time.monotonic() + self._start_deadline_s)
            self.what = observe(provider, self.pid, self.client.props().build_info, self.log)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def pid(self) -> int:
        assert self._process is not None  # noqa: S101 - inside the block
        return self._process.pid

    @property
    def log(self) -> str:
        """All the server said, the middle of a long log left out."""
        return self._log.text() if self._log else ""

    def cpu_seconds(self) -> float:
        """Processor time of the server so far, user and system."""
        with self._as_error():
            return cpu_seconds(self.pid)

    def waited_seconds(self) -> float | None:
        """Time the server's threads were ready and had no core; None where the kernel does not say."""
        return waited_seconds(self.pid)

    def memory_bytes(self) -> tuple[int, int]:
        """(resident now, most resident so far) of the server."""
        with self._as_error():
            return memory_bytes(self.pid)

    def check(self) -> None:
        """Raises ServerError where the server is no longer alive or was ended for a reason."""
        if error := self._why_gone():
            raise error

    def _start(self, command: list[str]) -> None:
        extra = {
            **self._provider.environment,
            **labels(self._run, self._provider.program),
            "GGML_NO_BACKTRACE": "1",
        }
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                launched(command, extra),
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                env=clean_environment(os.environ),
                process_group=0,
            )
        finally:
            os.close(writing)
            if self._process is None:
                os.close(reading)
        self._log = CappedLog(
            reading,
            limit=self._log_limit,
            on_flood=lambda: self._kill_for("server.log_flood", f"the server wrote more than {self._log_limit} bytes"),
        )
        late = f"the server was still wanted after {self._run_deadline_s} s"
        self._timer = threading.Timer(self._run_deadline_s, lambda: self._kill_for("server.run_deadline", late))
        self._timer.daemon = True
        self._timer.start()

    def _wait_until_ready(self, deadline: float) -> None:
        while True:
            if error := self._why_gone():
                raise error
            if self.port == 0:
                self._find_port()
            elif self._is_ready():
                self._is_starting = False
                return
            if time.monotonic() > deadline:
                raise self._error(
                    "server.start_deadline", f"the server was not ready after {self._start_deadline_s} s{self._hint()}"
                )
            time.sleep(_POLL_S)

    def _find_port(self) -> None:
        """The port that the kernel gave, from the process itself: no log has to be understood."""
        sockets = listening_sockets(self.pid)
        if not sockets:
            return
        if not all(is_loopback(address) for address, _ in sockets):
            raise self._error("server.not_loopback", f"the server listens beyond this machine ({sockets})")
        self.port = sockets[0][1]
        self.client = Client(self.port, timeout_s=self._request_timeout_s, explain=self._explain)

    def _is_ready(self) -> bool:
        try:
            return self.client.health() == "ready"
        except MillError as error:
            if error.code == "client.unreachable":
                return False
            raise

    def _hint(self) -> str:
        if self.port:
            return ""
        return " and listens on no port: a prefix has to become the server by exec, not start it as a child"

    def _explain(self, error: MillError) -> MillError:
        # A crash is seen first as a closed connection; the process ends a moment later, on a busy machine a longer one.
        if error.code == "client.unreachable":
            self._wait(_CRASH_S)
        return self._why_gone() or error

    def _why_gone(self) -> ServerError | None:
        if self._cause:
            return self._error(*self._cause)
        ending = self._ending_status()
        if ending is None:
            return None
        if self._log:
            self._log.join(1)
        if self._is_starting:
            return self._error("server.start", f"the server ended before it was ready ({ending})")
        return self._error("server.crashed", f"the server ended while it was wanted ({ending})")

    def _ending_status(self) -> str | None:
        """How the process ended, or None. It is not waited for: that would free its number, which names the group."""
        if self._process is None:
            return None
        if self._process.returncode is not None:
            return "its block was left"
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        exited = found.si_code == os.CLD_EXITED
        return f"exit code {found.si_status}" if exited else signal.Signals(found.si_status).name

    def _wait(self, seconds: float) -> bool:
        """Whether the process ended within `seconds`."""
        deadline = time.monotonic() + seconds
        while self._ending_status() is None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def _error(self, code: str, sentence: str) -> ServerError:
        return ServerError(sentence, code=code, log=self._log.last_lines() if self._log else "")

    @contextlib.contextmanager
    def _as_error(self) -> Iterator[None]:
        try:
            yield
        except ProcessLookupError as error:
            raise (self._why_gone() or self._error("server.crashed", "the server is gone")) from error

    def _kill_for(self, code: str, sentence: str) -> None:
        self._cause = self._cause or (code, sentence)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole group, until its leader has been waited for: after that the number may be another's."""
        with self._ending:
            if self._process and self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)

    def _end(self) -> None:
        """Gone within _GRACE_S + _KILL_S seconds, whatever the server does about SIGTERM."""
        if self._timer:
            self._timer.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            self._signal(signal.SIGTERM)
            self._wait(_GRACE_S)
        finally:
            # Also for what the server itself started: the group outlives its leader.
            self._signal(signal.SIGKILL)
            is_gone = self._wait(_KILL_S)
            with self._ending:
                process.poll()
        if self._log:
            self._log.join(1)
        if not is_gone or (self.port and _is_open(self.port)):
            raise self._error("server.stays", f"process {process.pid} or its port {self.port} is still there")


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
