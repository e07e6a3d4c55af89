"""Do both arms say the same? Where not: at which token, and whether the target itself was undecided there.

Greedy decoding with and without a draft evaluates the same rows in batches of another width, and kernels of another
width round otherwise; where the two likeliest tokens are near-tied the argmax may then turn. The prefix of the first
difference is therefore evaluated once more as one prompt, and the target's two likeliest tokens are taken there:

near-tie               they are closer than `near_tie` nats
another batch width    they are not, and this pass agrees with the arm with the draft: the baseline is what differs
clear gap              they are not, and it disagrees: the draft changed the output
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from draftmill.measurement.record import Divergence, Divergent, Sample
from draftmill.measurement.servers.client import Client
from draftmill.measurement.subject import Encoded

Lossless = Literal["identical", "diverged: near-tie", "diverged: another batch width", "diverged: clear gap"]
_WORST_FIRST: dict[Divergent, Lossless] = {
    "clear gap": "diverged: clear gap",
    "another batch width": "diverged: another batch width",
    "near-tie": "diverged: near-tie",
}


def worst(parted: bool, kinds: Collection[Divergent]) -> Lossless:
    """What is said of answers of which some parted for these reasons; without a reason the worst is said."""
    if not parted:
        return "identical"
    return next((word for kind, word in _WORST_FIRST.items() if kind in kinds), "diverged: clear gap")


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token that differs, the length of the shorter where it is a beginning of the other; None where
    they are equal."""
    if tuple(one) == tuple(other):
        return None
    shared = min(len(one), len(other))
    return next((at for at in range(shared) if one[at] != other[at]), shared)


def classify(gap: float, best: int, with_draft: int | None, near_tie: float) -> Divergent:
    if gap < near_tie:
        return "near-tie"
    return "another batch width" if best == with_draft else "clear gap"


def divergences(
    target: Client,
    pairs: Sequence[tuple[Sample, Sample]],
    prompts: Mapping[str, Encoded],
    *,
    near_tie: float,
    seed: int,
) -> list[Divergence]:
    """One for every pair of (target alone, target + draft) that differs; `target` serves the target alone."""
    found: list[Divergence] = []
    known: dict[tuple[int, ...], tuple[int, float]] = {}
    for alone, draft in pairs:
        at = first_difference(alone.tokens, draft.tokens)
        if at is None or alone.pair is None:
            continue
        prefix = (*prompts[alone.prompt].tokens, *alone.tokens[:at])
        if prefix not in known:
            (best, most), (_, next_most) = target.top_two(prefix, seed=seed)
            known[prefix] = best, most - next_most
        best, gap = known[prefix]
        tokens = [sample.tokens[at] if at < len(sample.tokens) else None for sample in (alone, draft)]
        kind = classify(gap, best, tokens[1], near_tie)
        found.append(
            Divergence(
                prompt=alone.prompt,
                pair=alone.pair,
                position=at,
                alone=tokens[0],
                with_draft=tokens[1],
                best=best,
                gap=gap,
                kind=kind,
            )
        )
    return found
