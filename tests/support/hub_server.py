"""A hub on loopback that misbehaves on request, and remembers what it was asked."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from draftmill.hub.server import HubHandler, HubServer, serve


@dataclass
class Fault:
    """kind: one of those below; path: what the request's path ends with; times: how often, None for ever.

    silence   no answer until the server ends
    status    answers `status` with `headers`; `body` as text
    truncate  the promised length, then the connection closes after `after` bytes
    reset     as truncate, with a TCP reset
    stall     `after` bytes, then nothing until the server ends
    short     a consistent answer that ends after `after` bytes of the file
    long      one byte more than the file has
    corrupt   the byte of the file at `after` is flipped
    redirect  302 to `location` (which gets the path appended)
    etag      the body is right, the ETag is not
    no_range  a Range is ignored
    wrong_range  a Range is answered with the part one byte further on
    """

    kind: str
    path: str = ""
    times: int | None = 1
    after: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    location: str = ""


@dataclass(frozen=True)
class Asked:
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class _Misbehaving(HubHandler):
    faults: ClassVar[list[Fault]]
    requests: ClassVar[list[Asked]]
    ended: ClassVar[threading.Event]
    lock: ClassVar[threading.Lock]
    fault: Fault | None = None

    def answer(self) -> None:
        with self.lock:
            headers = {key.lower(): value for key, value in self.headers.items()}
            self.requests.append(Asked(self.command, self.path, headers))
            self.fault = self._next_fault()
        fault, kind = self.fault, self.fault.kind if self.fault else ""
        if fault and kind == "status":
            self._send_text(fault)
        elif kind == "silence":
            self.ended.wait()
            self.close_connection = True
        elif fault and kind == "redirect":
            self._send_text(Fault("", status=302, headers={"Location": fault.location + self.path}))
        else:
            if kind == "no_range":
                del self.headers["Range"]
            super().answer()

    def _next_fault(self) -> Fault | None:
        path = self.path.partition("?")[0]
        for fault in self.faults:
            if path.endswith(fault.path) and fault.times != 0:
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def _send_text(self, fault: Fault) -> None:
        self.send_response(fault.status)
        for key, value in fault.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(fault.body)))
        self.end_headers()
        self.wfile.write(fault.body.encode())

    def send_header(self, keyword: str, value: str) -> None:
        kind = self.fault.kind if self.fault else ""
        if kind == "etag" and keyword in ("ETag", "X-Linked-Etag"):
            value = f'"{"0" * 64}"'
        if self.fault and kind in ("short", "long") and keyword == "Content-Length" and "resolve" in self.path:
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
            value = str(max(0, self.fault.after - start) if kind == "short" else int(value) + 1)
        if kind == "wrong_range" and keyword == "Content-Range":
            first, _, rest = value.removeprefix("bytes ").partition("-")
            value = f"bytes {int(first) + 1}-{rest}"
        super().send_header(keyword, value)

    def send_body(self, path: Path, start: int, end: int) -> None:
        fault = self.fault
        data = bytearray(path.read_bytes()[start:end])
        if fault is None or fault.kind in ("etag", "no_range", "wrong_range"):
            self._write(data)
            return
        if fault.kind == "long":
            self._write(data + b"!")
        elif fault.kind == "corrupt":
            if start <= fault.after < end:
                data[fault.after - start] ^= 1
            self._write(data)
        elif fault.kind in ("truncate", "short", "stall", "reset"):
            self._write(data[: max(0, fault.after - start)])
            if fault.kind == "stall":
                self.ended.wait()
            if fault.kind == "reset":
                # Linger of zero: closing sends RST instead of FIN.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            self.close_connection = fault.kind != "short"
        else:
            raise AssertionError(f"no such fault: {fault.kind}")

    def _write(self, data: bytes | bytearray) -> None:
        try:
            self.wfile.write(data)
            self.wfile.flush()
        except OSError:
            self.close_connection = True

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()


@dataclass
class MisbehavingHub:
    """faults may be changed while it runs."""

    server: HubServer
    faults: list[Fault]
    requests: list[Asked]

    @property
    def endpoint(self) -> str:
        return self.server.endpoint

    def asked_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.requests if asked.path.partition("?")[0].endswith(path)]


@contextmanager
def misbehaving_hub(mirror: Path, *faults: Fault) -> Iterator[MisbehavingHub]:
    """The real server over a mirror folder, with faults in the way."""
    ended = threading.Event()
    state: dict[str, Any] = {
        "faults": list(faults),
        "requests": [],
        "ended": ended,
        "lock": threading.Lock(),
    }
    with serve(mirror, handler=type("Handler", (_Misbehaving,), state)) as server:
        try:
            yield MisbehavingHub(server, state["faults"], state["requests"])
        finally:
            ended.set()


def write_mirror(root: Path, repo: str = "acme/tiny", weights: int = 3_000_000, licence: str = "apache-2.0") -> Path:
    """A mirror with one repository: config.json (in git), model.safetensors (in LFS), README.md; returns its root.
    The bytes are those of a counter, so that no two blocks are equal."""
    folder = root / repo
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(f"---\nlicense: {licence}\nbase_model: acme/large\n---\n")
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}) + "\n")
    count = weights // 4 + 1
    (folder / "model.safetensors").write_bytes(struct.pack(f"<{count}I", *range(count))[:weights])
    return root
