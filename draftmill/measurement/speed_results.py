"""What the samples of two arms say, computed from the record each time it is read.

A pair's two samples answer one prompt. Seconds per new token are compared, so that an answer that parted from its
partner and ended elsewhere still counts for what it is. `request` takes the whole request, prompt included, as whoever
waits for it sees it, and decides; `generation` takes the server's own time of the tokens after the first. Tokens per
second are for reading within the run: they are in no ratio.

waiting   sum of the time a server's threads had no core / (that + its processor time), over both arms' samples
lossless  from the token ids of each pair, by the worst of the divergences
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftmill.measurement.lossless import Lossless, worst
from draftmill.measurement.record import ALONE, WITH_DRAFT, Arm, Divergence, Sample, Speed, paired
from draftmill.measurement.statistics import Reason, Rule, Verdict, WarmUp, decide, pair_ratios, split_warm_up
from draftmill.speculation.figures import Definition, Figure, Figures, compute_figures, round_cost
from draftmill.speculation.trace import Acceptance

Word = Literal["faster", "slower", "no difference", "no verdict", "did not speculate"]
Pair = tuple[Sample, Sample]

_ARMS: tuple[Arm, Arm] = (ALONE, WITH_DRAFT)
DEFAULT_RULE = Rule()


@dataclass(frozen=True)
class OfArm:
    """One arm, for reading within the run. tokens_per_s: median over its samples, generation only."""

    arm: Arm
    tokens_per_s: float
    cpu_s_per_token: float
    waiting: float | None
    warm_up: WarmUp | None


@dataclass(frozen=True)
class OfKind:
    """The pairs of one kind of prompt. acceptance: None where the engine's counters are missing."""

    kind: str
    request: Verdict
    lossless: Lossless
    acceptance: Figures | None


@dataclass(frozen=True)
class SpeedResult:
    """word is request's, or "did not speculate": then nothing but arms is there.

    generation: None where every answer is one token. cpu: median over the pairs of the target alone's processor seconds
    per token / those with the draft; None where some were too short to count. costs: what a round costs in target
    tokens, by each definition of tokens per round, from the ratio of generation.
    """

    word: Word
    reason: Reason | None
    sentence: str
    request: Verdict | None
    generation: Verdict | None
    lossless: Lossless | None
    arms: tuple[OfArm, ...]
    cpu: float | None
    acceptance: Figures | None
    costs: tuple[Figure, ...]
    kinds: tuple[OfKind, ...]


def speed_result(record: Speed, rule: Rule = DEFAULT_RULE) -> SpeedResult:
    """Raises Refused where samples have no partner, or are no positive times."""
    arms = tuple(_of_arm(record, arm) for arm in _ARMS if any(sample.arm == arm for sample in record.samples))
    if silence := record.silence:
        sentence = f"did not speculate ({silence.cause}): {silence.evidence}"
        return SpeedResult("did not speculate", None, sentence, None, None, None, arms, None, None, (), ())
    pairs = pairs_of(record)
    waiting = waiting_share([sample for pair in pairs for sample in pair])
    request = decide(_ratios(pairs, request_s), rule, waiting=waiting)
    longer = [pair for pair in pairs if min(len(sample.tokens) for sample in pair) > 1]
    generation = decide(_ratios(longer, generation_s), rule, waiting=waiting) if longer else None
    lossless = _lossless(pairs, record.divergences)
    figures = _figures(record, pairs)
    kind_of = {prompted.name: prompted.kind for prompted in record.prompts}
    by_kind: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_kind.setdefault(kind_of[pair[0].prompt], []).append(pair)
    return SpeedResult(
        word=request.word,
        reason=request.reason,
        sentence=_sentence(request, lossless, waiting),
        request=request,
        generation=generation,
        lossless=lossless,
        arms=arms,
        cpu=_cpu_ratio(pairs),
        acceptance=figures,
        costs=_costs(figures, generation),
        kinds=tuple(
            OfKind(
                kind,
                decide(_ratios(some, request_s), rule, waiting=waiting),
                _lossless(some, record.divergences),
                _figures(record, some),
            )
            for kind, some in by_kind.items()
        ),
    )


def pairs_of(record: Speed) -> list[Pair]:
    """(target alone, target + draft) of each pair, in the order of pairs. Raises Refused: samples_unpaired."""
    return paired(record.samples)


def request_s(sample: Sample) -> float:
    """Seconds per new token, the prompt's included."""
    return sample.wall_s / max(len(sample.tokens), 1)


def generation_s(sample: Sample) -> float:
    """Seconds per new token after the first, by the server's clock."""
    return sample.predicted_ms / 1000 / max(len(sample.tokens) - 1, 1)


def waiting_share(samples: Sequence[Sample]) -> float | None:
    """None where the kernel did not count it."""
    waited = [sample.waited_s for sample in samples]
    if not samples or None in waited:
        return None
    lost = sum(seconds for seconds in waited if seconds)
    wanted = lost + sum(sample.cpu_s for sample in samples)
    return lost / wanted if wanted else 0.0


def _ratios(pairs: Sequence[Pair], seconds: Callable[[Sample], float]) -> NDArray[np.float64]:
    return pair_ratios([seconds(alone) for alone, _ in pairs], [seconds(draft) for _, draft in pairs])


def _of_arm(record: Speed, arm: Arm) -> OfArm:
    own = [sample for sample in record.samples if sample.arm == arm]
    kept = [sample for sample in own if sample.pair is not None]
    # Warm-ups come first after each start; those of later starts are few and would blur what the first ones show.
    first = next((index for index, sample in enumerate(own) if sample.pair is not None), len(own))
    rates = [1 / seconds for sample in kept or own if (seconds := generation_s(sample))]
    tokens = sum(len(sample.tokens) for sample in kept or own)
    return OfArm(
        arm,
        float(np.median(rates)) if rates else 0.0,
        sum(sample.cpu_s for sample in kept or own) / max(tokens, 1),
        waiting_share(kept or own),
        split_warm_up([request_s(sample) for sample in [*own[:first], *kept]], first) if kept else None,
    )


def _lossless(pairs: Sequence[Pair], divergences: Sequence[Divergence]) -> Lossless:
    parted = {alone.pair for alone, draft in pairs if alone.tokens != draft.tokens}
    return worst(bool(parted), {divergence.kind for divergence in divergences if divergence.pair in parted})


def _figures(record: Speed, pairs: Sequence[Pair]) -> Figures | None:
    answers = [draft.counters for _, draft in pairs]
    known = tuple(counters for counters in answers if counters)
    if len(known) < len(answers):
        return None
    return compute_figures(Acceptance(regime=record.regime, answers=known))


def _costs(figures: Figures | None, generation: Verdict | None) -> tuple[Figure, ...]:
    if figures is None or generation is None:
        return ()
    speed = Figure(Definition.SPEED_RATIO, generation.ratio, figures.regime)
    wanted = (figures.pooled[name] for name in (Definition.TOKENS_UNTRUNCATED, Definition.TOKENS_BUDGET))
    return tuple(round_cost(tokens, speed) for tokens in wanted if tokens.value is not None)


def _cpu_ratio(pairs: Sequence[Pair]) -> float | None:
    costs = [[sample.cpu_s / max(len(sample.tokens), 1) for sample in pair] for pair in pairs]
    if not all(alone > 0 and draft > 0 for alone, draft in costs):
        return None
    return float(np.median([alone / draft for alone, draft in costs]))


def _sentence(request: Verdict, lossless: Lossless, waiting: float | None) -> str:
    few = request.reason == "too few pairs"
    interval = "" if few else f" [{request.interval.low:.3f}, {request.interval.high:.3f}]"
    at = f"{request.ratio:.3f}x{interval} over {request.pairs} pair{'s' if request.pairs > 1 else ''}"
    if request.word != "no verdict":
        return f"{request.word}, {lossless}: {at}"
    why = {
        "too few pairs": f"{request.rule.fewest} are needed",
        "machine too busy": f"the servers waited {waiting or 0:.0%} of the time they wanted for a core, "
        f"{request.rule.waiting:.0%} at most is allowed: quieten the machine, or give fewer threads",
        "drift": f"the ratio moves with time (p {request.drift.p:.4f}): quieten the machine and start again",
        "interval too wide": f"about {request.settles_at} pairs would settle it at this spread",
    }[request.reason or "too few pairs"]
    return f"no verdict, {request.reason}: {why}; measured {at}, {lossless}"
