"""The parent's side of the engine: a child process with a deadline, its log kept, killed with whoever started it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from draftmill.host import cores
from draftmill.outcome import MillError

_TAIL_BYTES = 4096
_TAIL_LINES = 6


class EngineError(MillError):
    """The engine did not do what it was asked.

    `code`: engine.load (it refused the file), engine.crashed (a signal or an abort), engine.timeout, engine.run;
    `log`: the end of the engine's own log.
    """

    def __init__(self, sentence: str, *, code: str, log: str) -> None:
        super().__init__(f"{sentence}; the engine's log ends with: {log or '(nothing)'}", code=code)
        self.log = log


@dataclass(frozen=True)
class Generation:
    """Greedy token ids after a prompt; `finite`: no logit on the way was NaN or infinite."""

    ids: list[int]
    finite: bool


class Engine:
    """One model in one child process; a context manager.

    `timeout_s` bounds each request, the load included. The kernel ties the child to the *thread* that starts it: use
    the engine in the thread that entered it. Raises EngineError, and BadConfiguration when the engine is not installed.
    """

    def __init__(self, model: Path, *, vocab_only: bool = False, timeout_s: float = 300) -> None:
        self._model = model
        self._vocab_only = vocab_only
        self._timeout_s = timeout_s
        self.n_tokens = 0

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "draftmill.engine.child", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )
        try:
            self.n_tokens = self._ask({"do": "load", "path": str(self._model), "vocab_only": self._vocab_only})
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def tokenize(self, texts: list[str], *, add_special: bool = False) -> list[list[int]]:
        """Token ids of each text by llama.cpp's tokenizer, strings of special tokens parsed as such."""
        ids: list[list[int]] = self._ask({"do": "tokenize", "texts": texts, "add_special": add_special})
        return ids

    def pieces(self) -> list[bytes]:
        """The bytes of every token id, special tokens written out, unused ones empty."""
        return [piece.encode("latin-1") for piece in self._ask({"do": "pieces"})]

    def generate(self, prompt: list[int], count: int, *, threads: int | None = None) -> Generation:
        """`count` greedy tokens after `prompt`, in a context of its own of 512 tokens."""
        threads = threads or cores()
        ids, finite = self._ask({"do": "generate", "prompt": prompt, "count": count, "threads": threads})
        return Generation(ids, finite)

    def _ask(self, request: dict[str, Any]) -> Any:
        process = self._process
        assert process.stdin and process.stdout  # noqa: S101 - both are pipes
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(self._timeout_s, expire)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            process.kill()
            status = process.wait()
            if expired.is_set():
                raise self._error(f"the engine took more than {self._timeout_s} s to {request['do']}", "engine.timeout")
            ending = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            raise self._error(f"the engine died ({ending}) at {request['do']}", "engine.crashed")
        reply = json.loads(line)
        if "error" in reply:
            raise self._error(reply["error"], reply["code"])
        return reply["ok"]

    def _error(self, sentence: str, code: str) -> EngineError:
        return EngineError(sentence, code=code, log=self.log_tail())

    def log_tail(self) -> str:
        """The last lines of the engine's own log."""
        # The child writes at an offset that it shares with us: neither seek nor read may move it.
        size = os.fstat(self._log.fileno()).st_size
        raw = os.pread(self._log.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return " | ".join(raw.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()
