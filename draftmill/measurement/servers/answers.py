"""What a llama-server answers, as typed values. Field names are llama.cpp's (tools/server/README.md).

Whatever is missing or of another kind ends in KeyError, TypeError, ValueError or AttributeError.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def read_completion(answer: Mapping[str, Any], wall_s: float) -> Completion:
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


def read_steps(body: str) -> tuple[Step, ...]:
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


def read_slot(slot: Mapping[str, Any]) -> Slot:
    speculative = slot.get("speculative")
    return Slot(
        id=int(slot["id"]),
        n_ctx=int(slot["n_ctx"]),
        speculative=None if speculative is None else bool(speculative),
        is_processing=bool(slot["is_processing"]),
    )


def read_props(raw: Mapping[str, Any]) -> Props:
    return Props(str(raw["build_info"]), str(raw["model_path"]), int(raw["total_slots"]), raw)


def read_metrics(text: str) -> Metrics:
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
