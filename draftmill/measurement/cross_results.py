"""What a cross measurement says: by route and prompt, and in one sentence. Computed each time the record is read."""

from dataclasses import dataclass
from typing import Literal

from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.cross_record import OWN, Cross
from draftmill.measurement.lossless import Lossless
from draftmill.speculation.figures import Definition, Figures, compute_figures
from draftmill.speculation.trace import Acceptance, Trace

Word = Literal["agree", "explained", "unexplained", "no verdict", "diverged"]
_ENDS = ("budget end", "end of text")


@dataclass(frozen=True)
class Row:
    """One answer of one route. tokens: rounds' tokens/round by both definitions, None where undefined. same: whether
    its text is the target's own."""

    prompt: str
    route: str
    trace: Trace
    untruncated: float | None
    by_budget: float | None
    same: bool


@dataclass(frozen=True)
class CrossResult:
    """diverged: the own loop's text is not the target's. whole: by route, all prompts."""

    word: Word
    sentence: str
    lossless: Lossless | None
    rows: tuple[Row, ...]
    whole: dict[str, Figures]


def cross_result(record: Cross) -> CrossResult:
    own = record.own
    lossless = acceptance_result(own).lossless
    answers = own.acceptance.answers if own.acceptance else ()
    whole: dict[str, Figures] = {}
    rows: list[Row] = []
    runs = [(OWN, own.regime, answers, own.texts or ())]
    runs += [(route.name, route.regime, route.answers, route.texts) for route in record.routes]
    for name, regime, traces, texts in runs:
        if not traces:
            continue
        whole[name] = compute_figures(Acceptance(regime=regime, answers=tuple(traces)))  # type: ignore[arg-type]
        for trace, text in zip(traces, texts, strict=True):
            assert isinstance(trace, Trace)  # noqa: S101 - every route here is token-exact
            pooled = compute_figures(Acceptance(regime=regime, answers=(trace,))).pooled
            untruncated, by_budget = (
                pooled[each].value for each in (Definition.TOKENS_UNTRUNCATED, Definition.TOKENS_BUDGET)
            )
            rows.append(Row(trace.prompt, name, trace, untruncated, by_budget, text.alone == text.with_draft))
    order = {trace.prompt: at for at, trace in enumerate(answers)}
    rows.sort(key=lambda row: order[row.prompt])
    word, sentence = _said(record, lossless, len(answers))
    return CrossResult(word, sentence, lossless, tuple(rows), whole)


def _said(record: Cross, lossless: Lossless | None, prompts: int) -> tuple[Word, str]:
    if lossless == "diverged: clear gap":
        return "diverged", "the own loop's text is not the target's own: nothing can be held against its rounds"
    if not record.routes:
        return "no verdict", f"no other route ran: {'; '.join(f'{each.name}: {each.reason}' for each in record.absent)}"
    names = ", ".join(route.name for route in record.routes)
    compared = f"own loop against {names} on {prompts} prompt{'s' if prompts != 1 else ''}"
    total = prompts * len(record.routes)
    ends = sum(each.cause in _ENDS for each in record.departures)
    others = [each for each in record.departures if each.cause not in _ENDS]
    equal = total - len(record.departures)
    said = f"{compared}: {equal + ends} of {total} lists equal up to the budget or the text's end"
    said += f", {equal} of them to the last round"
    if not others:
        return "agree", said
    causes = {each.cause: sum(one.cause == each.cause for one in others) for each in others}
    said += "; " + ", ".join(f"{count} depart by: {cause}" for cause, count in sorted(causes.items()))
    return ("unexplained" if "unexplained" in causes else "explained"), said
