"""The HTTP of a llama-server as typed values.

Field names are llama.cpp's (tools/server/README.md). A connection serves one request: the server closes idle ones after
seconds, and a request that was sent twice would be measured twice.
"""

import http.client
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from draftmill.outcome import MillError, Unavailable

_T = TypeVar("_T")
_MOST_BYTES = 1 << 26
_METRIC = re.compile(r"llamacpp:(?P<name>\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)")
_POSITION = re.compile(r'position="(\d+)"')


@dataclass(frozen=True)
class Timings:
    """Counts in tokens, times in milliseconds. `draft_n*` are None where the server drafted nothing.

    predicted_ms covers predicted_n - 1 tokens: the first comes out of the prompt.
    """

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    cache_n: int | None
    draft_n: int | None
    draft_n_accepted: int | None


@dataclass(frozen=True)
class Completion:
    """One answer: token ids, text, why it stopped (limit, eos, word), and `wall_s` from send to last byte."""

    tokens: tuple[int, ...]
    content: str
    stop_type: str
    truncated: bool
    timings: Timings
    wall_s: float


@dataclass(frozen=True)
class Step:
    """One message of a streamed answer: its tokens, and the counters up to it. stop: "" but in the last."""

    tokens: tuple[int, ...]
    predicted_n: int
    draft_n: int
    draft_n_accepted: int
    stop: str


@dataclass(frozen=True)
class Slot:
    """`speculative` is None where the server does not say."""

    id: int
    n_ctx: int
    speculative: bool | None
    is_processing: bool


@dataclass(frozen=True)
class Props:
    """`build_info` as the server states it ("b11669-..."); `raw` is all it says."""

    build_info: str
    model_path: str
    total_slots: int
    raw: Mapping[str, Any]


@dataclass(frozen=True)
class Metrics:
    """Counters since the start; None where the server has no such counter. `accepted_per_position` from position 0."""

    tokens_predicted: float | None
    decodes: float | None
    drafts: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    accepted_per_position: tuple[float, ...]
    values: Mapping[str, float]


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
        return self._typed("/completion", lambda: _completion(answer, wall_s))

    def steps(self, prompt: Sequence[int], n_predict: int, *, seed: int) -> tuple[Step, ...]:
        """Greedy tokens after `prompt` as the server sends them, one a message, with its counters at each; the last is
        the end and has no token. Tokens of an unfinished character are held back (tools/server/server-context.cpp)."""
        request = _greedy(prompt, n_predict, seed) | {"cache_prompt": False, "stream": True, "timings_per_token": True}
        status, body = self._request("POST", "/completion", request)
        if status != 200:
            raise self._explain(_status_error("/completion", status, body))
        return self._typed("/completion", lambda: _steps(body.decode()))

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
        return self._typed("/slots", lambda: [_slot(slot) for slot in answer])

    def props(self) -> Props:
        raw = self._json("GET", "/props")
        return self._typed(
            "/props",
            lambda: Props(str(raw["build_info"]), str(raw["model_path"]), int(raw["total_slots"]), raw),
        )

    def metrics(self) -> Metrics:
        status, body = self._request("GET", "/metrics")
        if status != 200:
            raise self._explain(_status_error("/metrics", status, body))
        return self._typed("/metrics", lambda: parse_metrics(body.decode()))

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


def parse_metrics(text: str) -> Metrics:
    """Reads the Prometheus text of /metrics."""
    values: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in text.splitlines():
        if match := _METRIC.fullmatch(line.strip()):
            position = _POSITION.search(match["labels"] or "")
            if position and match["name"] == "spec_decode_num_accepted_tokens_per_pos_total":
                positions[int(position[1])] = float(match["value"])
            elif not match["labels"]:
                values[match["name"]] = float(match["value"])
    return Metrics(
        tokens_predicted=values.get("tokens_predicted_total"),
        decodes=values.get("n_decode_total"),
        drafts=values.get("spec_decode_num_drafts_total"),
        drafted_tokens=values.get("spec_decode_num_draft_tokens_total"),
        accepted_tokens=values.get("spec_decode_num_accepted_tokens_total"),
        accepted_per_position=tuple(positions[position] for position in sorted(positions)),
        values=values,
    )


def _greedy(prompt: str | Sequence[int], n_predict: int, seed: int) -> dict[str, Any]:
    return {
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "n_predict": n_predict,
        "seed": seed,
        "temperature": 0,
        "return_tokens": True,
        "stream": False,
    }


def _completion(answer: Mapping[str, Any], wall_s: float) -> Completion:
    timings = answer["timings"]
    return Completion(
        tokens=tuple(int(token) for token in answer["tokens"]),
        content=str(answer["content"]),
        stop_type=str(answer["stop_type"]),
        truncated=bool(answer["truncated"]),
        timings=Timings(
            prompt_n=int(timings["prompt_n"]),
            prompt_ms=float(timings["prompt_ms"]),
            predicted_n=int(timings["predicted_n"]),
            predicted_ms=float(timings["predicted_ms"]),
            cache_n=_whole(timings, "cache_n"),
            draft_n=_whole(timings, "draft_n"),
            draft_n_accepted=_whole(timings, "draft_n_accepted"),
        ),
        wall_s=wall_s,
    )


def _steps(body: str) -> tuple[Step, ...]:
    """Server-sent events, a JSON object each."""
    messages = [
        json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ") and line[6:] != "[DONE]"
    ]
    return tuple(
        Step(
            tokens=tuple(int(token) for token in each.get("tokens", ())),
            predicted_n=int(each["timings"]["predicted_n"]),
            draft_n=_whole(each["timings"], "draft_n") or 0,
            draft_n_accepted=_whole(each["timings"], "draft_n_accepted") or 0,
            stop=str(each.get("stop_type", "")) if each["stop"] else "",
        )
        for each in messages
    )


def _whole(values: Mapping[str, Any], name: str) -> int | None:
    return int(values[name]) if name in values else None


def _slot(slot: Mapping[str, Any]) -> Slot:
    speculative = slot.get("speculative")
    return Slot(
        id=int(slot["id"]),
        n_ctx=int(slot["n_ctx"]),
        speculative=None if speculative is None else bool(speculative),
        is_processing=bool(slot["is_processing"]),
    )


def _status_error(path: str, status: int, body: bytes) -> Unavailable:
    text = body[:300].decode(errors="replace")
    return Unavailable(f"the server answers {path} with status {status}: {text}", code="client.status", where=path)
