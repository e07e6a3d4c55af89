"""Named records for the tests: the two published per-round lists, and regimes."""

from typing import Any

from draftmill.speculation.regime import Regime
from draftmill.speculation.trace import Acceptance, Counters, Round, Trace

# Qwen3-4B with PARD-Qwen3-0.6B, budget 64, and with PARD2-Qwen3-8B, budget 24; k 4, as published in the seed's page.
PARD = [4, 0, 4, 4, 1, 2, 4, 4, 4, 0, 0, 0, 4, 0, 0, 4, 0, 4, 0, 1, 4]
PARD2 = [0, 2, 1, 3, 0, 2, 3, 0, 0, 0, 4]


def regime(**changes: Any) -> Regime:
    members: dict[str, Any] = {
        "drafter": "d" * 64,
        "target": "e" * 64,
        "route": "token-exact",
        "spec_type": "draft-simple",
        "n_max": 4,
        "n_min": 0,
        "p_min": 0.0,
        "fallback": None,
        "block": None,
        "budget": 64,
        "prompts": "f" * 64,
        "temperature": 0.0,
        "seed": 1,
        "backend": "cpu",
        "device": "CPU",
        "threads": 2,
        "target_kv": "f16/f16",
        "drafter_kv": "f16/f16",
        "build": "b11549",
        "kernel": "haswell",
    }
    return Regime(**(members | changes))


def trace(accepted: list[int], *, offered: int | list[int] = 4, **changes: Any) -> Trace:
    """Without more said: the prompt's own pass gives no token, and the budget cuts one token off the last round."""
    each = [offered] * len(accepted) if isinstance(offered, int) else offered
    emitted = bool(changes.get("first_token")) + sum(accepted) + len(accepted) - 1
    members: dict[str, Any] = {
        "prompt": "sky",
        "budget": emitted,
        "emitted": emitted,
        "stop": "budget",
        "first_token": False,
        "rounds": tuple(Round(offered=o, accepted=a) for o, a in zip(each, accepted, strict=True)),
    }
    return Trace(**(members | changes))


def counters(**changes: Any) -> Counters:
    """The measured SmolLM2 pair: 64 tokens, 50 of 52 drafts accepted in 13 rounds."""
    members: dict[str, Any] = {
        "prompt": "sky",
        "budget": 64,
        "emitted": 64,
        "stop": "budget",
        "first_token": True,
        "offered": 52,
        "accepted": 50,
        "passes": 13,
        "undrafted": 0,
        "by_position": (13, 13, 12, 12),
    }
    return Counters(**(members | changes))


def acceptance(*answers: Trace | Counters, **changes: Any) -> Acceptance:
    return Acceptance(regime=regime(**({"budget": answers[0].budget} | changes)), answers=answers)  # type: ignore[arg-type]


def pard() -> Acceptance:
    return acceptance(trace(PARD, budget=64, emitted=64))


def pard2() -> Acceptance:
    return acceptance(trace(PARD2, budget=24, emitted=24))
