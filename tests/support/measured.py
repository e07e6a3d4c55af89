"""Hand-written records of measurements, one for every outcome: what a report is made from without a device.

Each request returns 64 tokens, so that seconds per token are the wall time / 64; the server's own time of the 63 tokens
after the first is 63 / 64 of it. With a draft the counters are those of the measured SmolLM2 pair.
"""

from collections.abc import Sequence
from typing import Any

from draftmill.measurement.record import (
    ALONE,
    WITH_DRAFT,
    Accepted,
    Arm,
    Divergence,
    File,
    Library,
    Machine,
    Memory,
    Prompted,
    Ran,
    Sample,
    Setup,
    Silence,
    Speed,
)
from draftmill.speculation.trace import Acceptance, Counters
from tests.speculation.records import PARD, PARD2, counters, regime, trace

TOKENS = 64
PROMPTS = (
    Prompted(name="sky", kind="explanation", tokens=9),
    Prompted(name="sort", kind="code", tokens=21),
)
# Ratios 1.40 to 1.60 in no order: median (1.48 + 1.52) / 2.
FASTER = (1.50, 1.40, 1.60, 1.45, 1.55, 1.48, 1.52, 1.42, 1.58, 1.53)
WIDE = (1.50, 0.80, 1.20, 0.90, 1.10, 0.95, 1.40, 0.85)
RISING = (1.10, 1.15, 1.20, 1.25, 1.30, 1.35, 1.40, 1.45, 1.50, 1.55)


def file(name: str, digest: str, **changes: Any) -> File:
    members: dict[str, Any] = {
        "name": name,
        "sha256": digest * 64,
        "size": 144_811_360,
        "architecture": "llama",
        "label": "SmolLM2 135M Instruct",
    }
    return File(**(members | changes))


def ran(arm: Arm | str, **changes: Any) -> Ran:
    draft = ("-md", "draft.gguf", "--spec-type", "draft-simple", "--spec-draft-n-max", "4") if arm != ALONE else ()
    members: dict[str, Any] = {
        "provider": "xllamacpp",
        "executable": "/opt/venv/lib/python3.11/site-packages/xllamacpp/xllamacpp.cpython-311-x86_64-linux-gnu.so",
        "digest": "a" * 64,
        "build": "xllamacpp 2026.10.11549",
        "libraries": (
            Library(path="/usr/lib/x86_64-linux-gnu/libc.so.6", sha256="b" * 64),
            Library(path="/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0", sha256=None),
        ),
        "devices": ("CPU: Intel Xeon Processor",),
        "nodes": (),
        "variant": "SSE3 AVX AVX2 F16C FMA",
        "arguments": (
            "python",
            "-m",
            "draftmill.measurement.servers.xllamacpp_server",
            "-m",
            "target model.gguf",
            *draft,
        ),
        "environment": {"OMP_NUM_THREADS": "2"},
    }
    return Ran(**(members | changes))


def measured(**changes: Any) -> dict[str, Any]:
    """The members of every record."""
    return {
        "run": "20260101-120000-abcd",
        "started": "2026-01-01T12:00:00+00:00",
        "tool": "draftmill 0.1.0",
        "target": file("target.gguf", "e", size=1_384_120_000),
        "draft": file("draft.gguf", "d"),
        "pairing": (),
        "regime": regime(route="counters"),
        "setup": Setup(device="cpu", together=True, block=1, warm_up=2, chat=False, context=1024, near_tie=0.1),
        "machine": Machine(cpu="Intel Xeon Processor", cores=2, memory=8_323_239_936, system="Linux 6.1 x86_64"),
        "memory": Memory(before={"host_available": 6 << 30}, after={"host_available": (6 << 30) - 4096}, remarks=()),
        "prompts": PROMPTS,
        "ran": {ALONE: ran(ALONE), WITH_DRAFT: ran(WITH_DRAFT)},
        "remarks": (),
    } | changes


def sample(arm: Arm, pair: int | None, seconds: float, **changes: Any) -> Sample:
    """seconds: per token."""
    members: dict[str, Any] = {
        "arm": arm,
        "pair": pair,
        "second": False,
        "prompt": PROMPTS[(pair or 0) % len(PROMPTS)].name,
        "tokens": tuple(range(TOKENS)),
        "stop": "budget",
        "wall_s": seconds * TOKENS,
        "prompt_ms": seconds * 1000,
        "predicted_ms": seconds * 1000 * (TOKENS - 1),
        "cpu_s": 2 * seconds * TOKENS,
        "waited_s": 0.0,
        "counters": None,
    }
    return Sample(**(members | changes))


def samples(
    ratios: Sequence[float],
    *,
    waiting: float = 0.0,
    counted: Counters | None = None,
    others: Sequence[int] = (),
) -> tuple[Sample, ...]:
    """Two warm-ups of each arm at twice and once the usual time, then pairs in ABBA order; 0.06 s a token alone.

    waiting: this share of what the servers wanted. others: pairs whose answers part at token 5.
    """
    found = [sample(arm, None, factor * 0.06) for factor in (2, 1) for arm in (ALONE, WITH_DRAFT)]
    for pair, ratio in enumerate(ratios):
        times: dict[Arm, float] = {ALONE: 0.06, WITH_DRAFT: 0.06 / ratio}
        order: tuple[Arm, Arm] = (ALONE, WITH_DRAFT) if pair % 2 == 0 else (WITH_DRAFT, ALONE)
        for place, arm in enumerate(order):
            wanted = 2 * times[arm] * TOKENS
            changes: dict[str, Any] = {
                "second": bool(place),
                "cpu_s": (1 - waiting) * wanted,
                "waited_s": waiting * wanted,
            }
            if arm == WITH_DRAFT:
                name = PROMPTS[pair % len(PROMPTS)].name
                changes["counters"] = counted and counted.model_copy(update={"prompt": name})
                if pair in others:
                    changes["tokens"] = (*range(5), *range(1000, 1000 + TOKENS - 5))
            found.append(sample(arm, pair, times[arm], **changes))
    return tuple(found)


def speed(ratios: Sequence[float] = FASTER, **changes: Any) -> Speed:
    """Median of ten: 1.51. All texts identical, 50 of 52 drafts accepted in 13 rounds of each request."""
    members: dict[str, Any] = {"samples": samples(ratios, counted=counters()), "divergences": (), "silence": None}
    return Speed(**(measured() | members | changes))


def slower() -> Speed:
    return speed([1 / ratio for ratio in FASTER])


def no_difference() -> Speed:
    return speed([1.001, 0.999, 1.002, 0.998, 1.003, 0.997, 1.0, 1.004])


def too_few() -> Speed:
    return speed(FASTER[:3])


def too_busy() -> Speed:
    return speed(samples=samples(FASTER, waiting=0.5, counted=counters()))


def drifting() -> Speed:
    return speed(RISING)


def too_wide() -> Speed:
    return speed(WIDE)


def silent(cause: str = "no spec type", evidence: str = "slots[0].speculative is false", **changes: Any) -> Speed:
    """One pair, then it was seen that the draft is not used."""
    silence = Silence(cause=cause, evidence=evidence, prompt="sky")
    return speed(samples=samples([1.0]), silence=silence, **changes)


def divergence(kind: str, pair: int = 1, **changes: Any) -> Divergence:
    members: dict[str, Any] = {
        "prompt": PROMPTS[pair % len(PROMPTS)].name,
        "pair": pair,
        "position": 5,
        "alone": 5,
        "with_draft": 1000,
        "best": 1000 if kind == "another batch width" else 5,
        "gap": 0.01 if kind == "near-tie" else 1.5,
        "kind": kind,
    }
    return Divergence(**(members | changes))


def diverged(*kinds: str) -> Speed:
    """A pair a kind, from pair 1 on."""
    pairs = range(1, 1 + len(kinds))
    return speed(
        samples=samples(FASTER, counted=counters(), others=pairs),
        divergences=tuple(divergence(kind, pair) for kind, pair in zip(kinds, pairs, strict=True)),
    )


def uncounted() -> Speed:
    """An engine that does not count rounds."""
    return speed(samples=samples(FASTER))


def accepted(acceptance: Acceptance | None, **changes: Any) -> Accepted:
    members: dict[str, Any] = {"acceptance": acceptance, "silence": None}
    if acceptance:
        members["regime"] = acceptance.regime
    return Accepted(**(measured() | members | changes))


def by_counters() -> Accepted:
    """50 of 52 and 48 of 56 drafts in 13 and 15 rounds."""
    answers = (counters(), counters(prompt="sort", offered=56, accepted=48, passes=15, by_position=(15, 13, 11, 9)))
    return accepted(Acceptance(regime=regime(route="counters"), answers=answers))


def token_exact(rounds: Sequence[int] = PARD, budget: int = 64) -> Accepted:
    """A published per-round list, of drafts offered four at a time."""
    answers = (trace(list(rounds), budget=budget, emitted=budget),)
    return accepted(Acceptance(regime=regime(budget=budget), answers=answers), prompts=PROMPTS[:1])


def token_exact_pard2() -> Accepted:
    return token_exact(PARD2, 24)


def silent_acceptance() -> Accepted:
    cause, evidence = "vocabularies", "the target and draft vocabs are not compatible"
    return accepted(None, silence=Silence(cause=cause, evidence=evidence, prompt=None))


HOSTILE = "<script>alert(1)</script>\u202egpj.\x1b[31m|`x` ![a](http://evil.example/x.png) </summary> \"'"


def hostile() -> Speed:
    """Everything that a file, a log or a user names is hostile."""
    file_of = {"label": HOSTILE, "architecture": HOSTILE}
    what = ran(
        HOSTILE,
        build=HOSTILE,
        arguments=(HOSTILE,),
        environment={HOSTILE: HOSTILE},
        devices=(HOSTILE,),
        libraries=(Library(path=HOSTILE, sha256=None),),
    )
    return silent(
        HOSTILE,
        HOSTILE,
        target=file(HOSTILE, "e", **file_of),
        draft=file(HOSTILE, "d", **file_of),
        remarks=(HOSTILE,),
        pairing=(HOSTILE,),
        prompts=tuple(each.model_copy(update={"kind": HOSTILE}) for each in PROMPTS),
        memory=Memory(before={HOSTILE: 1}, after={HOSTILE: 2}, remarks=(HOSTILE,)),
        ran={HOSTILE: what},
    )


SPEEDS = {
    "faster, identical": speed,
    "slower, identical": slower,
    "no difference, identical": no_difference,
    "no verdict, too few pairs": too_few,
    "no verdict, machine too busy": too_busy,
    "no verdict, drift": drifting,
    "no verdict, interval too wide": too_wide,
    "did not speculate (no spec type)": silent,
    "faster, diverged: near-tie": lambda: diverged("near-tie"),
    "faster, diverged: another batch width": lambda: diverged("near-tie", "another batch width"),
    "faster, diverged: clear gap": lambda: diverged("another batch width", "clear gap"),
}
"""Each outcome of a speed measurement: the beginning of its sentence, and a record."""

ACCEPTANCES = {
    "98 of 108 offered drafts accepted": by_counters,
    "44 of 84 offered drafts accepted": token_exact,
    "15 of 44 offered drafts accepted": token_exact_pard2,
    "did not speculate (vocabularies)": silent_acceptance,
}
