"""Acceptance in a report: each figure with its definition and its averaging, and the plots that a mean hides."""

from collections.abc import Sequence

from draftmill.reports.bars_plot import accepted_plot, positions_plot
from draftmill.reports.document import Block, Facts, Section, Table, Text
from draftmill.reports.notation import counts, number, share
from draftmill.reports.rounds_plot import rounds_plot
from draftmill.speculation.figures import Definition, Figure, Figures
from draftmill.speculation.trace import Counters, Trace

D = Definition
_SAID = {
    D.ACCEPTED_PER_OFFERED: "accepted / offered drafts",
    D.ACCEPTED_PER_TESTED: "accepted / (accepted + rounds with a rejection): drafts after the first mismatch were never"
    " tested",
    D.ACCEPTED_PER_ROUND: "accepted / rounds",
    D.TOKENS_UNTRUNCATED: "(accepted + rounds) / rounds: the bonus token counts, and so does what the cut took away",
    D.TOKENS_BUDGET: "budget / rounds, where every answer ran into its budget",
    D.POSITION: "rounds that accepted at least so many drafts / rounds",
    D.POSITION_CONDITIONAL: "the same / rounds that offered this draft and accepted the one before it",
    D.ZERO_ROUNDS: "rounds that accepted none of their drafts / rounds with a draft",
    D.FULL_ROUNDS: "rounds that accepted all of their drafts / rounds with a draft",
    D.BETWEEN_ROUNDS: "rounds that accepted some, not all / rounds with a draft",
    D.BIMODALITY: "(zero + full) / rounds with a draft: 1 is all or nothing",
}
BY_COUNTERS = (
    "An engine drafts no further than the budget, so that nothing of the last round is cut: untruncated is a lower "
    "bound. The first token, which the prompt's own pass gave, counts into the budget and into no round."
)
_PER_ROUND = {D.ACCEPTED_PER_ROUND, D.TOKENS_UNTRUNCATED, D.TOKENS_BUDGET}
_OF_THE_LIST = {D.ACCEPTED_PER_TESTED, D.ZERO_ROUNDS, D.FULL_ROUNDS, D.BETWEEN_ROUNDS, D.BIMODALITY}
NO_LIST = (
    "The counters route gives totals, not each round: the per-round strip, the histogram of accepted drafts, zero and "
    "full rounds and accepted/tested are not available. The token-exact route keeps the list."
)


def kind_head() -> tuple[str, ...]:
    return ("answers", "accepted/offered", "share", "tokens/round, untruncated", "tokens/round, budget")


def kind_cells(figures: Figures | None) -> tuple[str, ...]:
    """One cell for each of `kind_head`."""
    if figures is None:
        return ("", "not counted", "", "", "")
    pooled = figures.pooled
    return (
        str(figures.answers),
        f"{figures.accepted}/{figures.offered}",
        share(pooled[D.ACCEPTED_PER_OFFERED].value),
        number(pooled[D.TOKENS_UNTRUNCATED].value),
        number(pooled[D.TOKENS_BUDGET].value),
    )


def groups_table(caption: str, by: str, groups: dict[str, Figures]) -> Table:
    rows = tuple((name, *kind_cells(figures)) for name, figures in groups.items())
    return Table(caption, (by, *kind_head()), rows, frozenset(range(1, 6)))


def figures_table(figures: Figures) -> Table:
    """Every figure by both averagings. Pooled: numerators and denominators are summed over the answers."""
    rows = tuple(
        (
            name.value,
            _written(pooled),
            counts(pooled.counts),
            _written(figures.prompt_means[name]),
            _SAID[name],
        )
        for name, pooled in figures.pooled.items()
        if name not in _OF_THE_LIST or figures.histogram is not None
    )
    head = ("figure", "pooled", "of", "mean of prompts", "definition")
    return Table("Acceptance, each figure by its definition", head, rows, frozenset({1, 2, 3}))


def _written(figure: Figure) -> str:
    return number(figure.value) if figure.definition in _PER_ROUND else share(figure.value)


def acceptance(figures: Figures, answers: Sequence[Trace | Counters]) -> Section:
    """Totals, figures, positions, and each round where the route knows it."""
    route = figures.regime.route
    totals = Facts(
        (
            ("route", f"{route}: {_ROUTES[route]}"),
            ("answers", str(figures.answers)),
            ("offered, accepted", f"{figures.offered}, {figures.accepted}"),
            ("rounds", f"{figures.rounds}, of which {figures.undrafted} without a draft"),
            ("tokens returned", f"{figures.emitted}; {figures.cut} more were produced and cut"),
        )
    )
    note = "Pooled: summed over the answers before dividing. Mean of prompts: the mean of the answers' own figures."
    blocks: list[Block] = [totals, Text(note), figures_table(figures), *_positions(figures)]
    traces = [answer for answer in answers if isinstance(answer, Trace)]
    if traces and figures.histogram is not None:
        blocks += [accepted_plot(figures.histogram), rounds_plot(traces)]
    else:
        blocks += [Text(BY_COUNTERS), Text(NO_LIST)]
    return Section("Acceptance", tuple(blocks))


_ROUTES = {
    "counters": "the engine's own totals",
    "token-exact": "each offered draft is judged against the target's own greedy continuation",
}


def _positions(figures: Figures) -> list[Block]:
    shown = positions_plot(figures.positions, figures.conditional)
    table = positions_table(figures)
    if shown is None or table is None:
        return [Text("By position: the engine does not count it.")]
    note = f"Of all rounds: {_SAID[D.POSITION]}. Conditional: "
    if _knows_conditional(figures):
        note += f"{_SAID[D.POSITION_CONDITIONAL]}."
    else:
        note += "not available, the counters route does not know it."
    return [shown, Text(note), table]


def positions_table(figures: Figures) -> Table | None:
    """None where the engine does not count it."""
    if not figures.positions:
        return None
    head: tuple[str, ...] = ("draft", "of all rounds", "of")
    rows: list[tuple[str, ...]] = [
        (str(whole.position), share(whole.value), counts(whole.counts)) for whole in figures.positions
    ]
    if _knows_conditional(figures):
        head += ("conditional", "of")
        rows = [
            (*row, share(given.value), counts(given.counts))
            for row, given in zip(rows, figures.conditional, strict=True)
        ]
    return Table("Acceptance per position", head, tuple(rows), frozenset(range(len(head))))


def histogram_table(figures: Figures) -> Table | None:
    """None on the counters route."""
    if figures.histogram is None:
        return None
    rounds = tuple(str(count) for count in figures.histogram)
    head = ("accepted", *(str(accepted) for accepted in range(len(rounds))))
    return Table("Rounds by accepted drafts", head, (("rounds", *rounds),), frozenset(range(1, len(head))))


def _knows_conditional(figures: Figures) -> bool:
    return any(figure.value is not None for figure in figures.conditional)
