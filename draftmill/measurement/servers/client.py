"""The HTTP of a llama-server. What it answers is typed in `answers`.

Paths and fields are llama.cpp's (tools/server/README.md). A connection serves one request: the server closes idle ones
after seconds, and a request that was sent twice would be measured twice.
"""

import http.client
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from draftmill.measurement.servers.answers import (
    Completion,
    Metrics,
    Props,
    Slot,
    Step,
    read_completion,
    read_metrics,
    read_props,
    read_slot,
    read_steps,
)
from draftmill.outcome import MillError, Unavailable

_T = TypeVar("_T")
_MOST_BYTES = 1 << 26


class Client:
    """Talks to the server at 127.0.0.1:`port`.

    `explain`: turns a failed request into the error to raise, for whoever knows how the server fares.
    Raises Unavailable (client.unreachable, client.answer, client.status) or what `explain` returns.
    """

    def __init__(
        self, port: int, *, timeout_s: float = 300, explain: Callable[[MillError], MillError] = lambda error: error
    ) -> None:
        self.port = port
        self._timeout_s = timeout_s
        self._explain = explain

    def health(self) -> Literal["loading", "ready"]:
        """Raises also while nothing listens yet."""
        status, body = self._request("GET", "/health", timeout_s=5)
        if status == 200:
            return "ready"
        if status == 503:
            return "loading"
        raise self._explain(_status_error("/health", status, body))

    def completion(
        self,
        prompt: str | Sequence[int],
        n_predict: int,
        *,
        seed: int,
        cache_prompt: bool = False,
        timeout_s: float | None = None,
    ) -> Completion:
        """Greedy tokens after `prompt` (text, or token ids). cache_prompt: whether the slot may use what it knows."""
        request = _greedy(prompt, n_predict, seed) | {"cache_prompt": cache_prompt}
        started = time.perf_counter()
        answer = self._json("POST", "/completion", request, timeout_s)
        wall_s = time.perf_counter() - started
        return self._typed("/completion", lambda: read_completion(answer, wall_s))

    def steps(self, prompt: Sequence[int], n_predict: int, *, seed: int) -> tuple[Step, ...]:
        """Greedy tokens after `prompt` as the server sends them, one a message, with its counters at each; the last is
        the end and has no token. Tokens of an unfinished character are held back (tools/server/server-context.cpp)."""
        request = _greedy(prompt, n_predict, seed) | {"cache_prompt": False, "stream": True, "timings_per_token": True}
        status, body = self._request("POST", "/completion", request)
        if status != 200:
            raise self._explain(_status_error("/completion", status, body))
        return self._typed("/completion", lambda: read_steps(body.decode()))

    def top_two(self, prompt: Sequence[int], *, seed: int) -> tuple[tuple[int, float], tuple[int, float]]:
        """The two likeliest tokens after `prompt`, each with its log-probability before any sampling, best first."""
        answer = self._json("POST", "/completion", _greedy(prompt, 1, seed) | {"cache_prompt": False, "n_probs": 2})

        def read() -> tuple[tuple[int, float], tuple[int, float]]:
            first, second = answer["completion_probabilities"][0]["top_logprobs"]
            return (int(first["id"]), float(first["logprob"])), (int(second["id"]), float(second["logprob"]))

        return self._typed("/completion", read)

    def apply_template(self, text: str) -> str:
        """`text` as one user message in the model's own chat template, ready to be answered."""
        answer = self._json("POST", "/apply-template", {"messages": [{"role": "user", "content": text}]})
        return self._typed("/apply-template", lambda: str(answer["prompt"]))

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        answer = self._json("POST", "/tokenize", {"content": text, "add_special": add_special})
        return self._typed("/tokenize", lambda: [int(token) for token in answer["tokens"]])

    def slots(self) -> list[Slot]:
        answer = self._json("GET", "/slots")
        return self._typed("/slots", lambda: [read_slot(slot) for slot in answer])

    def props(self) -> Props:
        raw = self._json("GET", "/props")
        return self._typed("/props", lambda: read_props(raw))

    def metrics(self) -> Metrics:
        status, body = self._request("GET", "/metrics")
        if status != 200:
            raise self._explain(_status_error("/metrics", status, body))
        return self._typed("/metrics", lambda: read_metrics(body.decode()))

    def _json(self, method: str, path: str, request: Any = None, timeout_s: float | None = None) -> Any:
        status, body = self._request(method, path, request, timeout_s)
        if status != 200:
            raise self._explain(_status_error(path, status, body))
        return self._typed(path, lambda: json.loads(body))

    def _typed(self, path: str, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._explain(
                Unavailable(
                    f"the server's answer at {path} is not llama-server's ({type(error).__name__}: {error}).",
                    code="client.answer",
                    where=path,
                )
            ) from error

    def _request(
        self, method: str, path: str, request: Any = None, timeout_s: float | None = None
    ) -> tuple[int, bytes]:
        timeout_s = timeout_s or self._timeout_s
        deadline = time.monotonic() + timeout_s
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        body = None if request is None else json.dumps(request).encode()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json", "Connection": "close"})
            # http.client lets go of the socket once it has the headers; a timeout set on it still holds.
            socket = connection.sock
            response = connection.getresponse()
            parts, size = [], 0
            while part := response.read1(1 << 16):
                parts.append(part)
                size += len(part)
                left = deadline - time.monotonic()
                if left <= 0 or size > _MOST_BYTES:
                    raise TimeoutError(f"no end after {timeout_s} s or {_MOST_BYTES} bytes")
                socket.settimeout(left)
            if response.length:
                raise ConnectionError("the answer ends early")
            return response.status, b"".join(parts)
        except (OSError, http.client.HTTPException) as error:
            raise self._explain(
                Unavailable(
                    f"the server on port {self.port} did not answer {path} ({type(error).__name__}: {error}).",
                    code="client.unreachable",
                    where=path,
                )
            ) from error
        finally:
            connection.close()


def _greedy(prompt: str | Sequence[int], n_predict: int, seed: int) -> dict[str, Any]:
    return {
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "n_predict": n_predict,
        "seed": seed,
        "temperature": 0,
        "return_tokens": True,
        "stream": False,
    }


def _status_error(path: str, status: int, body: bytes) -> Unavailable:
    text = body[:300].decode(errors="replace")
    return Unavailable(f"the server answers {path} with status {status}: {text}", code="client.status", where=path)
