"""The greedy speculative loop: draft, verify the anchor and the drafts in one pass, keep what the target says itself.

The output is the target's own greedy text, as far as its argmax does not depend on how many rows a pass has (dflash.md
4.1). A round commits the accepted drafts and the target's next token (the bonus), which is the next round's anchor.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from draftmill.speculation.proposer import Proposal, Proposer
from draftmill.speculation.target import ROOT, Target
from draftmill.speculation.trace import Round, Stop, Trace

PATIENCE = 4
"""Rounds with drafts before the running acceptance is looked at: fewer say nothing about a text."""


@dataclass(frozen=True)
class Decoded:
    """tokens: the new ones, cut at the budget or behind the end of the text. drafted: of each round, as proposed."""

    tokens: tuple[int, ...]
    trace: Trace
    drafted: tuple[Proposal, ...]


def decode(
    target: Target,
    proposer: Proposer | None,
    prompt: Sequence[int],
    *,
    budget: int,
    ends: Collection[int] = (),
    fallback: float | None = None,
    name: str = "prompt",
) -> Decoded:
    """Greedy text behind a prompt. proposer: None decodes plainly, one row a pass.

    ends: tokens that end the text, which are kept as its last. fallback: once PATIENCE rounds were drafted, an answer
    whose accepted drafts are below this share of those offered is decoded plainly from there on. name: the trace's.
    """
    rows = target.prefill(prompt)
    tokens = [int(rows.logits[-1].argmax())]
    if proposer:
        proposer.begin(prompt, rows.features)
    rounds: list[Round] = []
    drafted: list[Proposal] = []
    committed = len(prompt)
    while (stop := _stop(tokens, budget, ends)) is None:
        if _too_low(rounds, fallback):
            proposer = None
        proposal = proposer.propose(tokens[-1]) if proposer else Proposal((), ())
        batch = (tokens[-1], *proposal.tokens)
        if target.context is not None and committed + len(batch) > target.context:
            stop = "length"
            break
        parents = (ROOT, *(parent + 1 for parent in proposal.parents))
        rows = target.verify(batch, parents)
        best = rows.logits.argmax(axis=1)
        path = _accepted(batch, parents, best)
        target.commit(path)
        if proposer:
            proposer.commit([batch[row] for row in path], rows.features[path])
        committed += len(path)
        tokens += [batch[row] for row in path[1:]] + [int(best[path[-1]])]
        rounds.append(Round(offered=len(proposal.tokens), accepted=len(path) - 1))
        drafted.append(proposal)
    kept = _cut(tokens, budget, ends)
    trace = Trace(
        prompt=name, budget=budget, emitted=len(kept), stop=stop, first_token=True, rounds=tuple(rounds)
    )  # fmt: skip
    return Decoded(tuple(kept), trace, tuple(drafted))


def _accepted(batch: Sequence[int], parents: Sequence[int], best: Sequence[int]) -> list[int]:
    """The path from the anchor on along which every row is what the target says after its parent."""
    path = [0]
    while True:
        following = (
            row for row, parent in enumerate(parents) if parent == path[-1] and batch[row] == int(best[path[-1]])
        )
        found = next(following, None)
        if found is None:
            return path
        path.append(found)


def _cut(tokens: list[int], budget: int, ends: Collection[int]) -> list[int]:
    kept = tokens[:budget]
    at = next((at for at, token in enumerate(kept) if token in ends), None)
    return kept if at is None else kept[: at + 1]


def _stop(tokens: list[int], budget: int, ends: Collection[int]) -> Stop | None:
    """None while the text goes on. An end within the budget ends it, also as the budget's last token."""
    if any(token in ends for token in tokens[:budget]):
        return "eos"
    return "budget" if len(tokens) >= budget else None


def _too_low(rounds: Sequence[Round], fallback: float | None) -> bool:
    with_drafts = [each for each in rounds if each.offered]
    if fallback is None or len(with_drafts) < PATIENCE:
        return False
    return sum(each.accepted for each in with_drafts) < fallback * sum(each.offered for each in with_drafts)
