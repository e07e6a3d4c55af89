"""Routes side by side in a report: each answer's rounds, the first that departs and why, and what every route ran."""

from draftmill.measurement.cross_record import OWN, Cross, Departure, Route
from draftmill.measurement.cross_results import CrossResult, Row
from draftmill.reports.acceptance_sections import figures_table, groups_table
from draftmill.reports.document import Block, Facts, Folded, Items, Section, Table, Text, Verbatim
from draftmill.reports.notation import number, said
from draftmill.reports.rounds_plot import rounds_plot
from draftmill.speculation.regime import Regime, comparable

_NOTE = (
    "Accepted drafts of each round; the target's own token of a round is not counted in the lists. Untruncated: "
    "(accepted + rounds) / rounds; budget: budget / rounds. An engine takes no draft beyond the budget, so that its "
    "last round may hold fewer."
)
_CAUSES = (
    "near-tie: the two scores that decided it are closer than the limit. another window rule: our own draft has the "
    "route's count with the route's rule. p_min: the gate let fewer drafts through. budget end, end of text: one list "
    "has no room there. quantised target, draft: no near-tie, and the engine's file is rounded. text parted before: "
    "the two loops stand behind different texts. unexplained: none of these."
)


def sides_table(result: CrossResult) -> Table:
    """prompt, route, rounds, tokens/round by both definitions, the list."""
    rows = tuple(
        (
            row.prompt,
            row.route,
            str(row.trace.passes),
            number(row.untruncated),
            number(row.by_budget),
            "own" if row.same else "another",
            listed(row),
        )
        for row in result.rows
    )
    head = ("prompt", "route", "rounds", "tokens/round, untruncated", "tokens/round, budget", "text", "accepted")
    return Table("Rounds side by side", head, rows, frozenset({2, 3, 4}))


def listed(row: Row) -> str:
    """A dash is a pass without a draft."""
    return " ".join(str(each.accepted) if each.offered else "-" for each in row.trace.rounds)


def departures_table(record: Cross) -> Table | None:
    if not record.departures:
        return None
    rows = tuple(
        (
            each.prompt,
            each.route,
            str(each.round + 1),
            str(each.token),
            f"{_count(each.own)} : {_count(each.other)}",
            each.cause,
            each.evidence,
        )
        for each in record.departures
    )
    head = ("prompt", "route", "round", "at token", "own : route", "why", "evidence")
    return Table("First round that departs", head, rows, frozenset({2, 3}))


def sides(record: Cross, result: CrossResult) -> Section:
    blocks: list[Block] = [Text(_NOTE), sides_table(result)]
    blocks.append(groups_table("All prompts, by route", "route", result.whole))
    traces = [
        row.trace.model_copy(update={"prompt": f"{row.prompt}, {row.route}"}) for row in result.rows
    ]  # fmt: skip
    blocks += [
        rounds_plot(traces),
        *(Folded(f"{name}: every figure", (figures_table(each),)) for name, each in result.whole.items()),
    ]
    return Section("Rounds side by side", tuple(blocks))


def departures(record: Cross) -> Section:
    table = departures_table(record)
    first: tuple[Block, ...] = (Text(_CAUSES), table) if table else (Text("No list departs."),)
    return Section("Where they depart, and why", first)


def routes(record: Cross) -> Section:
    """What each ran, in what its regime differs from the own loop's, and what did not run."""
    blocks: list[Block] = []
    for route in record.routes:
        blocks += [Text(f"{route.name}:"), _ran(route), _differs(record.own.regime, route)]
    if record.absent:
        blocks.append(Items(tuple(f"{each.name} did not run: {each.reason}" for each in record.absent)))
    return Section("Other routes", tuple(blocks))


def _ran(route: Route) -> Facts:
    facts = [
        ("engine", Verbatim(route.ran.executable)),
        ("build", route.ran.build),
        ("kernel variant", route.ran.variant or "not stated by the engine"),
        ("window rule of sliding layers", route.window_rule),
    ]
    for what, gguf in (("target", route.target), ("draft", route.draft)):
        if gguf:
            kinds = ", ".join(f"{count} {kind}" for kind, count in gguf.types.items())
            made = f"made by {gguf.made}" if gguf.made else "as given"
            facts.append((f"{what} GGUF", f"{gguf.file.name} ({made}; tensors: {kinds})"))
            facts.append((f"{what} GGUF, SHA-256", Verbatim(gguf.file.sha256)))
    facts.append(("arguments", Verbatim(" ".join(route.ran.arguments))))
    return Facts(tuple(facts))


def _differs(own: Regime, route: Route) -> Folded:
    """The regimes of two routes are never one: figures stand side by side, and make no ratio."""
    rows = tuple((each.where, said(each.measured), said(each.expected)) for each in comparable(own, route.regime))
    return Folded(f"{route.name}: in what its regime differs", (Table("Regimes", ("member", OWN, route.name), rows),))


def _count(value: int | None) -> str:
    return "ended" if value is None else str(value)


def departure_line(each: Departure) -> str:
    """For a terminal."""
    return f"{each.prompt}, {each.route}, round {each.round + 1}: {each.cause}: {each.evidence}"
