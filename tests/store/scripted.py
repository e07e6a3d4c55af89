"""An S3 server that says what a test tells it to: for answers that no server at hand can be made to give."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    status: int
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        text = f'<?xml version="1.0"?><Error><Code>{self.code}</Code><Message>no</Message></Error>' if self.code else ""
        return b"" if self.status in (204, 304) else text.encode()


@dataclass(frozen=True)
class Scripted:
    """A server that gives `answers[METHOD]` one after the other, the last one for ever."""

    endpoint: str
    answers: dict[str, list[Answer]]


@contextmanager
def scripted() -> Iterator[Scripted]:
    answers: dict[str, list[Answer]] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            script = answers[self.command]
            said = script.pop(0) if len(script) > 1 else script[0]
            body = said.body()
            self.send_response(said.status)
            for name, value in {"Content-Length": str(len(body)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body if self.command != "HEAD" else b"")

        do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Scripted(f"http://127.0.0.1:{server.server_port}", answers)
    finally:
        server.shutdown()
        server.server_close()
