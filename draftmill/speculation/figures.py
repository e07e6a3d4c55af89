"""Every figure of an acceptance measurement, computed from its raw record, with its definition and its regime.

There are at least six public definitions of acceptance and two of tokens per round; a number without its definition
cannot be compared. With A accepted and O offered drafts, R rounds:

accepted/offered            A / O
accepted/tested             A / (A + rounds with a rejection): a draft after the first mismatch was never tested.
                            PARD's own script calls this "acc"
accepted/rounds             A / R
tokens/round, untruncated   (A + R) / R: the bonus token counts, and so does what the cut took away
tokens/round, budget        budget / R, only where every answer ran into its budget
position                    rounds with at least i accepted / R
position, conditional       the same / rounds that offered an i-th draft and accepted the one before it
zero, full, between rounds  rounds with none, all, some of their drafts accepted / rounds with a draft
bimodality                  (zero + full) / rounds with a draft

Pooled: numerators and denominators summed over the answers. Mean of prompts: the mean of the answers' own figures,
over the answers that have one. The two differ where answers have different numbers of rounds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Literal

from draftmill.outcome import Refusal, Refused
from draftmill.speculation.regime import Regime, comparable
from draftmill.speculation.trace import Acceptance, Counters, Trace

Averaging = Literal["pooled", "mean of prompts"]


class Definition(StrEnum):
    ACCEPTED_PER_OFFERED = "accepted/offered"
    ACCEPTED_PER_TESTED = "accepted/tested"
    ACCEPTED_PER_ROUND = "accepted/rounds"
    TOKENS_UNTRUNCATED = "tokens/round, untruncated"
    TOKENS_BUDGET = "tokens/round, budget"
    POSITION = "position"
    POSITION_CONDITIONAL = "position, conditional"
    ZERO_ROUNDS = "zero rounds"
    FULL_ROUNDS = "full rounds"
    BETWEEN_ROUNDS = "between rounds"
    BIMODALITY = "bimodality"
    SPEED_RATIO = "speed ratio"
    COST_UNTRUNCATED = "round cost in target tokens, untruncated"
    COST_BUDGET = "round cost in target tokens, budget"


@dataclass(frozen=True)
class Figure:
    """value: None where it is undefined (no round, no draft, no per-round list), never 0 in its place.

    position: 1 for a round's first draft. counts: numerator and denominator where the figure is pooled.
    """

    definition: Definition
    value: float | None
    regime: Regime = field(repr=False)
    averaging: Averaging = "pooled"
    position: int | None = None
    counts: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "definition": self.definition.value,
            "averaging": self.averaging,
            "position": self.position,
            "value": self.value,
            "counts": list(self.counts) if self.counts else None,
            "regime": self.regime.digest,
        }


def _drafted(trace: Trace) -> int:
    return trace.passes - trace.undrafted


def _zero(trace: Trace) -> int:
    return sum(round.offered > 0 and not round.accepted for round in trace.rounds)


def _full(trace: Trace) -> int:
    return sum(0 < round.offered == round.accepted for round in trace.rounds)


def _rejections(trace: Trace) -> int:
    return sum(round.accepted < round.offered for round in trace.rounds)


# Numerator and denominator of one answer; None: this answer has no such figure, and so no pool with it in has one.
_Counts = tuple[int, int] | None
_BY_TOTALS: dict[Definition, Callable[[Trace | Counters], _Counts]] = {
    Definition.ACCEPTED_PER_OFFERED: lambda answer: (answer.accepted, answer.offered),
    Definition.ACCEPTED_PER_ROUND: lambda answer: (answer.accepted, answer.passes),
    Definition.TOKENS_UNTRUNCATED: lambda answer: (answer.accepted + answer.passes, answer.passes),
    Definition.TOKENS_BUDGET: lambda answer: (answer.budget, answer.passes) if answer.stop == "budget" else None,
}
_BY_ROUNDS: dict[Definition, Callable[[Trace], _Counts]] = {
    Definition.ACCEPTED_PER_TESTED: lambda trace: (trace.accepted, trace.accepted + _rejections(trace)),
    Definition.ZERO_ROUNDS: lambda trace: (_zero(trace), _drafted(trace)),
    Definition.FULL_ROUNDS: lambda trace: (_full(trace), _drafted(trace)),
    Definition.BETWEEN_ROUNDS: lambda trace: (_drafted(trace) - _zero(trace) - _full(trace), _drafted(trace)),
    Definition.BIMODALITY: lambda trace: (_zero(trace) + _full(trace), _drafted(trace)),
}


def _reached(answer: Trace | Counters, position: int) -> int | None:
    """Rounds with at least `position` accepted; None where only totals without positions are known."""
    if isinstance(answer, Trace):
        return sum(round.accepted >= position for round in answer.rounds)
    if answer.by_position is None:
        return None
    return answer.by_position[position - 1] if position <= len(answer.by_position) else 0


def _counts(definition: Definition, answer: Trace | Counters, position: int | None) -> _Counts:
    if definition in _BY_TOTALS:
        return _BY_TOTALS[definition](answer)
    if definition == Definition.POSITION and position:
        reached = _reached(answer, position)
        return None if reached is None else (reached, answer.passes)
    if not isinstance(answer, Trace):
        return None
    if definition == Definition.POSITION_CONDITIONAL and position:
        able = sum(round.offered >= position and round.accepted >= position - 1 for round in answer.rounds)
        return sum(round.accepted >= position for round in answer.rounds), able
    return _BY_ROUNDS[definition](answer)


def figure(
    definition: Definition, acceptance: Acceptance, *, averaging: Averaging = "pooled", position: int | None = None
) -> Figure:
    """One figure. `position` (from 1) for the two definitions by position, and for no other.

    Raises ValueError for a position without need or missing, and for definitions that no record alone gives.
    """
    if (definition in (Definition.POSITION, Definition.POSITION_CONDITIONAL)) != (
        position is not None and position > 0
    ):
        raise ValueError(f"{definition.value} with position {position}")
    if definition in (Definition.SPEED_RATIO, Definition.COST_UNTRUNCATED, Definition.COST_BUDGET):
        raise ValueError(f"{definition.value} does not follow from the rounds alone")
    regime = acceptance.regime
    found = [_counts(definition, answer, position) for answer in acceptance.answers]
    known = [counts for counts in found if counts is not None]
    if len(known) < len(found):
        return Figure(definition, None, regime, averaging, position)
    if averaging == "mean of prompts":
        means = [Fraction(*counts) for counts in known if counts[1]]
        return Figure(definition, float(sum(means) / len(means)) if means else None, regime, averaging, position)
    over, under = sum(counts[0] for counts in known), sum(counts[1] for counts in known)
    return Figure(definition, over / under if under else None, regime, averaging, position, (over, under))


@dataclass(frozen=True)
class Figures:
    """All figures of one regime. positions, conditional: one figure for each of 1..n_max, pooled.

    histogram[a]: rounds that accepted a drafts, 0..n_max; None on the counters route. cut: tokens produced and not
    emitted, which the untruncated definition counts and the budget definition does not.
    """

    regime: Regime
    answers: int
    offered: int
    accepted: int
    rounds: int
    undrafted: int
    emitted: int
    cut: int
    pooled: dict[Definition, Figure]
    prompt_means: dict[Definition, Figure]
    positions: tuple[Figure, ...]
    conditional: tuple[Figure, ...]
    histogram: tuple[int, ...] | None

    def as_json(self) -> dict[str, Any]:
        """For a report's reader; loading starts from the record, not from here."""
        totals = ("answers", "offered", "accepted", "rounds", "undrafted", "emitted", "cut")
        rows = (*self.pooled.values(), *self.prompt_means.values(), *self.positions, *self.conditional)
        return {
            "regime": self.regime.digest,
            **{name: getattr(self, name) for name in totals},
            "histogram": list(self.histogram) if self.histogram else None,
            "figures": [row.as_json() for row in rows],
        }


def compute_figures(acceptance: Acceptance) -> Figures:
    """Every figure of the record."""
    answers, most = acceptance.answers, acceptance.regime.n_max
    scalars = [*_BY_TOTALS, *_BY_ROUNDS]
    rounds = [round for answer in answers if isinstance(answer, Trace) for round in answer.rounds]
    return Figures(
        regime=acceptance.regime,
        answers=len(answers),
        offered=sum(answer.offered for answer in answers),
        accepted=sum(answer.accepted for answer in answers),
        rounds=sum(answer.passes for answer in answers),
        undrafted=sum(answer.undrafted for answer in answers),
        emitted=sum(answer.emitted for answer in answers),
        cut=sum(answer.produced - answer.emitted for answer in answers),
        pooled={name: figure(name, acceptance) for name in scalars},
        prompt_means={name: figure(name, acceptance, averaging="mean of prompts") for name in scalars},
        positions=tuple(figure(Definition.POSITION, acceptance, position=at) for at in range(1, most + 1)),
        conditional=tuple(
            figure(Definition.POSITION_CONDITIONAL, acceptance, position=at) for at in range(1, most + 1)
        ),
        histogram=tuple(sum(round.accepted == count for round in rounds) for count in range(most + 1))
        if acceptance.regime.route == "token-exact"
        else None,
    )


def pool(*acceptances: Acceptance) -> Acceptance:
    """The answers of several records of one regime as one record.

    Raises Refused (speculation.regime_differs) with every field in which another record departs from the first.
    """
    if not acceptances:
        raise ValueError("nothing to pool")
    first, *others = acceptances
    if findings := [finding for other in others for finding in comparable(first.regime, other.regime)]:
        raise Refused(*findings)
    return Acceptance(regime=first.regime, answers=tuple(a for each in acceptances for a in each.answers))  # type: ignore[arg-type]


def ratio(one: Figure, other: Figure) -> float:
    """one / other, where that means something.

    Raises Refused with all that is in the way: speculation.regime_differs (a finding a field),
    speculation.definition_differs (definition, averaging or position), speculation.undefined (no value, or zero below).
    """
    findings = list(comparable(one.regime, other.regime))
    findings += [
        Refusal(
            "speculation.definition_differs",
            member,
            getattr(one, member),
            getattr(other, member),
            f"two figures with another {member} are two quantities: compute both by one definition",
        )
        for member in ("definition", "averaging", "position")
        if getattr(one, member) != getattr(other, member)
    ]
    findings += [_undefined(each) for each in (one, other) if each.value is None]
    if other.value == 0:
        findings.append(_undefined(other))
    if findings:
        raise Refused(*findings)
    assert one.value is not None and other.value is not None  # noqa: S101 - refused above
    return one.value / other.value


_COSTS = {
    Definition.TOKENS_UNTRUNCATED: Definition.COST_UNTRUNCATED,
    Definition.TOKENS_BUDGET: Definition.COST_BUDGET,
}


def round_cost(tokens_per_round: Figure, speed: Figure) -> Figure:
    """What a round costs, in target-alone tokens: tokens per round / speed ratio, labelled by the tokens' definition.

    N tokens alone take N t; in R rounds of cost c they take R c t; the speed ratio s = N / (R c), so c = (N / R) / s.

    Raises Refused: speculation.regime_differs, speculation.not_a_cost (one of the two is another kind of figure),
    speculation.undefined.
    """
    findings = list(comparable(tokens_per_round.regime, speed.regime))
    for given, wanted in ((tokens_per_round, list(_COSTS)), (speed, [Definition.SPEED_RATIO])):
        if given.definition not in wanted:
            findings.append(
                Refusal(
                    "speculation.not_a_cost",
                    given.definition.value,
                    given.definition.value,
                    [each.value for each in wanted],
                    "a round's cost is tokens per round divided by the speed ratio: give these two figures",
                )
            )
    findings += [_undefined(each) for each in (tokens_per_round, speed) if each.value is None]
    if speed.value is not None and speed.value <= 0:
        findings.append(_undefined(speed))
    if findings:
        raise Refused(*findings)
    assert tokens_per_round.value is not None and speed.value is not None  # noqa: S101 - refused above
    cost = tokens_per_round.value / speed.value
    return Figure(_COSTS[tokens_per_round.definition], cost, speed.regime, tokens_per_round.averaging)


def _undefined(each: Figure) -> Refusal:
    return Refusal(
        "speculation.undefined",
        each.definition.value,
        each.value,
        "a positive number",
        "the record does not give this figure a usable value: measure with more rounds, or state it as undefined",
    )
