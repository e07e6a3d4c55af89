"""What an acceptance record says, as a whole, by kind of prompt and by prompt; computed each time it is read."""

from dataclasses import dataclass
from typing import Literal

from draftmill.measurement.lossless import Lossless, worst
from draftmill.measurement.record import Accepted
from draftmill.speculation.figures import Definition, Figures, compute_figures
from draftmill.speculation.trace import Acceptance, Counters, Trace


@dataclass(frozen=True)
class AcceptanceResult:
    """figures is None, and the others empty, where the draft did not speculate.

    lossless: whether the loop's text is the target's own; None where the route does not decode both.
    """

    word: Literal["measured", "did not speculate"]
    sentence: str
    figures: Figures | None
    by_kind: dict[str, Figures]
    by_prompt: dict[str, Figures]
    lossless: Lossless | None = None


def acceptance_result(record: Accepted) -> AcceptanceResult:
    whole = record.acceptance
    if whole is None:
        cause, evidence = (record.silence.cause, record.silence.evidence) if record.silence else ("unknown", "")
        return AcceptanceResult("did not speculate", f"did not speculate ({cause}): {evidence}", None, {}, {})
    kind_of = {prompted.name: prompted.kind for prompted in record.prompts}
    figures = compute_figures(whole)
    lossless = _lossless(record)
    per_offered = figures.pooled[Definition.ACCEPTED_PER_OFFERED].value
    untruncated = figures.pooled[Definition.TOKENS_UNTRUNCATED].value
    return AcceptanceResult(
        "measured",
        f"{figures.accepted} of {figures.offered} offered drafts accepted ({_number(per_offered)}), "
        f"{_number(untruncated)} tokens/round, untruncated, over {figures.rounds} rounds by the "
        f"{record.regime.route} route{_said(lossless, len(record.texts or ()))}",
        figures,
        _grouped(whole, kind_of),
        _grouped(whole, {answer.prompt: answer.prompt for answer in whole.answers}),
        lossless,
    )


def _lossless(record: Accepted) -> Lossless | None:
    if record.texts is None:
        return None
    parted = any(text.alone != text.with_draft for text in record.texts)
    return worst(parted, {divergence.kind for divergence in record.divergences})


def _said(lossless: Lossless | None, texts: int) -> str:
    if lossless is None:
        return ""
    if lossless == "identical":
        whose = "the text is" if texts == 1 else f"all {texts} texts are"
        return f"; {whose} the target's own greedy text, token for token"
    return f"; {lossless}"


def _grouped(whole: Acceptance, group_of: dict[str, str]) -> dict[str, Figures]:
    """Figures of the answers of each group, groups in the order of their first answer."""
    groups: dict[str, list[Trace | Counters]] = {}
    for answer in whole.answers:
        groups.setdefault(group_of[answer.prompt], []).append(answer)
    return {
        group: compute_figures(Acceptance(regime=whole.regime, answers=tuple(answers)))  # type: ignore[arg-type]
        for group, answers in groups.items()
    }


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
