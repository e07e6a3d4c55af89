"""The report of a measurement: a record and its figures as a document, the verdict first."""

from draftmill.measurement.acceptance_results import AcceptanceResult, acceptance_result
from draftmill.measurement.record import Accepted, Speed
from draftmill.measurement.speed_results import SpeedResult, pairs_of, speed_result
from draftmill.reports import acceptance_sections, measured_sections, speed_sections
from draftmill.reports.document import Document, Facts, Folded, Section, Text, Tone, Verbatim

_TONES: dict[str, Tone] = {
    "faster": "good",
    "slower": "bad",
    "no difference": "plain",
    "no verdict": "open",
    "did not speculate": "bad",
    "measured": "plain",
}


def tone(word: str, lossless: str | None = None) -> Tone:
    """A draft that changes the text is no good, however fast."""
    if word in ("faster", "measured") and lossless not in (None, "identical"):
        return "bad" if lossless == "diverged: clear gap" else "open"
    return _TONES[word]


def measurement_document(record: Speed | Accepted) -> Document:
    """Figures are computed here, from the record. Raises Refused (speed_result's reasons)."""
    if isinstance(record, Speed):
        speed = speed_result(record)
        return _document(record, "Speed", speed.word, tone(speed.word, speed.lossless), speed.sentence,
                         _of_speed(record, speed))  # fmt: skip
    found = acceptance_result(record)
    return _document(record, "Acceptance", found.word, tone(found.word, found.lossless), found.sentence,
                     _of_acceptance(record, found))  # fmt: skip


def _document(
    record: Speed | Accepted, what: str, word: str, tone: Tone, sentence: str, own: list[Section | None]
) -> Document:
    sections = [
        measured_sections.remarks(record),
        measured_sections.pair(record),
        *own,
        measured_sections.regime(record),
        measured_sections.setting(record),
        measured_sections.memory(record.memory),
        measured_sections.prompts(record),
        measured_sections.reproduce(record),
    ]
    return Document(
        title=f"{what}: {record.draft.name} drafts for {record.target.name} on {record.setup.device}",
        word=word,
        tone=tone,
        sentence=sentence,
        below=f"Run {record.run}, started {record.started}, {record.tool}.",
        sections=tuple(section for section in sections if section),
    )


def _of_speed(record: Speed, result: SpeedResult) -> list[Section | None]:
    return [
        speed_sections.ratio(record, result),
        speed_sections.kinds(result),
        speed_sections.arms(result),
        _speed_acceptance(record, result),
        speed_sections.costs(result),
        speed_sections.divergences(record),
    ]


def _speed_acceptance(record: Speed, result: SpeedResult) -> Section | None:
    if result.acceptance:
        answers = [draft.counters for _, draft in pairs_of(record)]
        return acceptance_sections.acceptance(result.acceptance, [each for each in answers if each])
    if record.silence:
        return None
    return Section("Acceptance", (Text("The engine's counters of rounds are missing: no acceptance, no round cost."),))


def _of_acceptance(record: Accepted, result: AcceptanceResult) -> list[Section | None]:
    if result.figures is None or record.acceptance is None:
        silence = record.silence
        facts = (("cause", silence.cause), ("evidence", Verbatim(silence.evidence))) if silence else ()
        return [Section("Acceptance", (Text("The draft was not used: there is no acceptance."), Facts(facts)))]
    by_prompt = acceptance_sections.groups_table("By prompt", "prompt", result.by_prompt)
    by_kind = acceptance_sections.groups_table("By kind of prompt", "kind", result.by_kind)
    return [
        Section("By kind of prompt", (by_kind, Folded(by_prompt.caption, (by_prompt,)))),
        acceptance_sections.acceptance(result.figures, record.acceptance.answers),
        speed_sections.divergences(record),
    ]
