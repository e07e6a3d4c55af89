"""Speed in a report: the ratio and how sure it is, by kind, both arms, every pair, where the answers part."""

from draftmill.measurement.record import Accepted, Speed
from draftmill.measurement.speed_results import Pair, SpeedResult, pairs_of, request_s
from draftmill.measurement.statistics import Drift, Rule, Verdict
from draftmill.reports.document import Block, Facts, Folded, Section, Table, Text, Verbatim
from draftmill.reports.notation import interval, number, share, significant, times
from draftmill.reports.paired_plot import PairOfTimes, paired_plot
from draftmill.speculation.figures import Definition

WITHIN = "tokens/s, only inside this run"
NO_RATIO = "The draft was not used: there is no ratio. What was timed is the target alone, under two names."


def ratio(record: Speed, result: SpeedResult) -> Section:
    """The ratio of the whole request, which decides, beside the server's own time of generation."""
    if result.request is None:
        return Section("Ratio", (Text(NO_RATIO), *_silence(record)))
    pairs = pairs_of(record)
    return Section(
        "Ratio",
        (
            Text("Seconds per new token of the target alone / with the draft, pair by pair: above 1 the draft pays."),
            paired_plot([_times_of(pair) for pair in pairs], result.request),
            _verdicts(result.request, result.generation),
            Facts(
                (
                    ("lossless", result.lossless or "unknown"),
                    ("processor time, target alone / target + draft", _cpu(result.cpu)),
                )
            ),
            _rule(result.request.rule),
            Folded(f"All {len(pairs)} pairs", (_pairs(pairs),)),
        ),
    )


def _silence(record: Speed) -> tuple[Block, ...]:
    silence = record.silence
    if silence is None:
        return ()
    prompt = (("at prompt", silence.prompt),) if silence.prompt else ()
    return (Facts((("cause", silence.cause), ("evidence", Verbatim(silence.evidence)), *prompt)),)


def _cpu(value: float | None) -> str:
    return "some samples were too short to count it" if value is None else times(value)


def _verdicts(request: Verdict, generation: Verdict | None) -> Table:
    def column(verdict: Verdict) -> tuple[str, ...]:
        return (
            verdict.word + (f" ({verdict.reason})" if verdict.reason else ""),
            times(verdict.ratio),
            _deciding(verdict),
            interval(verdict.bootstrap),
            number(verdict.spread),
            _drift(verdict.drift),
            str(verdict.pairs),
            _settled(verdict),
        )

    names = (
        "verdict",
        "median ratio",
        f"{request.rule.level:.0%} interval, decides",
        "bootstrap interval, beside it",
        "spread (MAD)",
        "drift",
        "pairs",
        "pairs that would settle it",
    )
    head, columns = ["", "whole request, decides"], [names, column(request)]
    if generation:
        head, columns = [*head, "generation only"], [*columns, column(generation)]
    return Table("Ratio, interval, spread and drift", tuple(head), tuple(zip(*columns, strict=True)))


def _deciding(verdict: Verdict) -> str:
    return interval(verdict.interval) + ("" if _reaches(verdict) else ", the whole range: too few pairs for the level")


def _reaches(verdict: Verdict) -> bool:
    """Of n values the whole range misses the median with 2 / 2^n: with few pairs no interval reaches the level."""
    return 2 / 2**verdict.pairs <= 1 - verdict.rule.level


def _settled(verdict: Verdict) -> str:
    if verdict.word != "no verdict":
        return "settled"
    return f"about {verdict.settles_at}" if verdict.settles_at else "more pairs do not help"


def _drift(drift: Drift) -> str:
    return f"{drift.slope:+.4f} a pair, correlation {drift.correlation:+.2f}, p {drift.p:.4f}"


def _rule(rule: Rule) -> Facts:
    return Facts(
        (
            (
                "rule",
                f"at least {rule.fewest} pairs; servers waited at most {rule.waiting:.0%} of the time they wanted for "
                f"a core; no drift with p below {rule.drift_p:g}; then the {rule.level:.0%} interval decides: wholly "
                f"above or below 1, or within {1 / (1 + rule.margin):.3f} to {1 + rule.margin:.3f}, which is no "
                "difference",
            ),
            ("bootstrap", f"{rule.resamples} resamples and permutations, seed {rule.seed}"),
        )
    )


def _times_of(pair: Pair) -> PairOfTimes:
    alone, draft = pair
    return PairOfTimes(request_s(alone), request_s(draft), alone_first=not alone.second)


def _pairs(pairs: list[Pair]) -> Table:
    rows = []
    for alone, draft in pairs:
        one = _times_of((alone, draft))
        rows.append(
            (
                str(alone.pair),
                Verbatim(alone.prompt),
                alone.arm if one.alone_first else draft.arm,
                significant(one.alone, 4),
                significant(one.with_draft, 4),
                times(one.ratio),
                "yes" if alone.tokens == draft.tokens else "no",
            )
        )
    head = ("pair", "prompt", "first", "target alone, s/token", "target + draft, s/token", "ratio", "same tokens")
    return Table("Every pair", head, tuple(rows), frozenset({0, 3, 4, 5}))


def kinds_table(result: SpeedResult) -> Table:
    """A row a kind of prompt: its ratio and interval, acceptance and whether the text stayed the same."""
    rows = tuple(
        (
            kind.kind,
            str(kind.request.pairs),
            times(kind.request.ratio),
            interval(kind.request.interval) if _reaches(kind.request) else "too few pairs",
            kind.request.word + (f" ({kind.request.reason})" if kind.request.reason else ""),
            share(kind.acceptance.pooled[Definition.ACCEPTED_PER_OFFERED].value) if kind.acceptance else "not counted",
            kind.lossless,
        )
        for kind in result.kinds
    )
    head = ("kind", "pairs", "ratio", "interval", "verdict", "accepted/offered", "lossless")
    return Table("By kind of prompt", head, rows, frozenset({1, 2, 3, 5}))


def kinds(result: SpeedResult) -> Section | None:
    if not result.kinds:
        return None
    note = "Acceptance depends on the kind of text more than on anything else: a ratio is of these prompts."
    return Section("By kind of prompt", (Text(note), kinds_table(result)))


def arms_table(result: SpeedResult) -> Table:
    """A column an arm. Absolute speeds are for reading within the run, and the table says so."""
    names = (WITHIN, "CPU seconds per token", "share of time waiting for a core", "warm-up / median of the kept")
    columns = [
        (
            number(arm.tokens_per_s, 2),
            significant(arm.cpu_s_per_token),
            "not counted by the kernel" if arm.waiting is None else share(arm.waiting),
            ", ".join(times(each) for each in arm.warm_up.relative) if arm.warm_up else "none kept",
        )
        for arm in result.arms
    ]
    rows = tuple(zip(names, *columns, strict=True))
    return Table("Both arms", ("", *(arm.arm for arm in result.arms)), rows, frozenset(range(1, 1 + len(columns))))


def arms(result: SpeedResult) -> Section:
    return Section("Both arms", (arms_table(result),))


def costs(result: SpeedResult) -> Section | None:
    """What a round costs in tokens of the target alone."""
    if not result.costs or result.generation is None:
        return None
    note = (
        "Tokens per round / speed ratio of generation "
        f"({times(result.generation.ratio)}): how many tokens the target alone would have decoded in a round's time."
    )
    if result.generation.word == "no verdict":
        note += " That ratio has no verdict, so neither has this."
    facts = tuple((cost.definition.value, f"{number(cost.value)} ({cost.averaging})") for cost in result.costs)
    return Section("Round cost", (Text(note), Facts(facts)))


def divergences(record: Speed | Accepted) -> Section | None:
    """Where the answers of a pair part, and how undecided the target was there."""
    if not record.divergences:
        return None
    rows = tuple(
        (
            str(each.pair),
            Verbatim(each.prompt),
            str(each.position),
            _token(each.alone),
            _token(each.with_draft),
            str(each.best),
            f"{each.gap:.4f}",
            each.kind,
        )
        for each in record.divergences
    )
    head = ("pair", "prompt", "at token", "alone", "with draft", "target's best", "gap, nats", "kind")
    note = (
        "The prefix of the first difference, evaluated once more as one prompt. Near-tie: the two likeliest tokens are "
        f"closer than {record.setup.near_tie:g} nats. Another batch width: they are not, but that pass agrees with the "
        "arm with the draft, so it is the baseline that computes otherwise. Clear gap: the draft changed the output."
    )
    table = Table("Where the answers part", head, rows, frozenset({0, 2, 3, 4, 5, 6}))
    return Section("Where the answers part", (Text(note), table))


def _token(token: int | None) -> str:
    return "ended" if token is None else str(token)
