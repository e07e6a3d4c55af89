"""A measurement in a few words: what a table of drafters says of it, each figure with its regime."""

from collections.abc import Iterable
from dataclasses import dataclass

from draftmill.reports.document import Tone
from draftmill.reports.measurement_document import tone
from draftmill.store.index import Accepted, Measurement, Ratio

DIGITS = 8
"""Of a regime's digest: enough to tell two apart, short enough for a table."""
SILENT = "did not speculate"
IDENTICAL = "identical"


@dataclass(frozen=True)
class Speed:
    """The newest measurement of speed on a device. ratio: None where there is no figure, or no verdict on it. changed:
    what became of the text, where it did not stay the same. more: older ones on this device."""

    device: str
    word: str
    tone: Tone
    ratio: Ratio | None
    reason: str | None
    changed: str | None
    regime: str
    page: str
    more: int


@dataclass(frozen=True)
class Kind:
    """accepted / offered of the prompts of a kind (None: of all), in percent; low and high None: too few prompts."""

    kind: str | None
    share: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Acceptance:
    """kinds is empty where the draft was never used, and `word` says so."""

    word: str
    kinds: tuple[Kind, ...]
    whole: Kind | None
    device: str
    regime: str
    page: str

    @property
    def has_spans(self) -> bool:
        return any(kind.low is not None for kind in self.kinds)


def speeds(measurements: Iterable[Measurement]) -> dict[str, Speed]:
    """By device."""
    found: dict[str, Speed] = {}
    for each in sorted(measurements, key=lambda each: (each.started, each.report)):
        if each.what == "speed":
            more = found[each.device].more + 1 if each.device in found else 0
            found[each.device] = speed_of(each, more)
    return found


def speed_of(each: Measurement, more: int = 0) -> Speed:
    return Speed(
        device=each.device,
        word=each.word,
        tone=tone(each.word, each.lossless),
        ratio=None if each.word in ("no verdict", SILENT) else each.ratio,
        reason=each.reason,
        changed=None if each.lossless in (None, IDENTICAL) else each.lossless,
        regime=each.regime[:DIGITS],
        page=page_of(each),
        more=more,
    )


def acceptance(measurements: Iterable[Measurement]) -> Acceptance | None:
    """Of the newest measurement that counted, or found the draft unused."""
    for each in sorted(measurements, key=lambda each: (each.started, each.report), reverse=True):
        if each.acceptance or each.word == SILENT:
            return acceptance_of(each)
    return None


def acceptance_of(each: Measurement) -> Acceptance:
    kinds = [_kind(one) for one in each.acceptance if one.offered]
    return Acceptance(
        word=each.word,
        kinds=tuple(kind for kind in kinds if kind.kind is not None),
        whole=next((kind for kind in kinds if kind.kind is None), None),
        device=each.device,
        regime=each.regime[:DIGITS],
        page=page_of(each),
    )


def page_of(each: Measurement) -> str:
    """The key of the report for people."""
    return f"{each.report.rpartition('/')[0]}/report.html"


def _kind(one: Accepted) -> Kind:
    low, high = (100 * one.span.low, 100 * one.span.high) if one.span else (None, None)
    return Kind(one.kind, 100 * one.accepted / one.offered, low, high)
