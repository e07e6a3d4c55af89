"""What the gate found: one outcome for each named check, figures of each tensor, and the verdict that follows.

As JSON this is gate.json. It holds no time and no path of the machine, so one package gives one file, byte for byte.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from draftmill import __version__
from draftmill.dflash.inventory import Variant
from draftmill.dflash.remark import Remark
from draftmill.outcome import Refusal

SCHEMA_VERSION = 1
SETTLED = "files.settled"


class Outcome(StrEnum):
    """How one check ended. Not run: something that is refused or cannot be read stands before it, and it may have
    looked at a part. Not applicable: of the other generation, or of a form that the package does not have."""

    PASS = "pass"  # noqa: S105
    REFUSED = "refused"
    UNDETERMINED = "undetermined"
    NOT_RUN = "not run"
    NOT_APPLICABLE = "not applicable"


class Verdict(StrEnum):
    """On the package."""

    PASS = "pass"  # noqa: S105
    REFUSED = "refused"
    NO_VERDICT = "no verdict"


@dataclass(frozen=True)
class Check:
    """One check. place: what it looked at. measured, expected: JSON values. evidence: the line that a person reads.

    withholds: it is undetermined, and without it nothing can be said about the package. An undetermined check that
    does not withhold is corroboration that the data does not give, and is said beside the verdict.
    """

    id: str
    title: str
    place: str
    measured: Any
    expected: Any
    outcome: Outcome
    evidence: str
    refusals: tuple[Refusal, ...] = ()
    withholds: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "title": self.title,
            "place": self.place,
            "measured": self.measured,
            "expected": self.expected,
            "verdict": self.outcome.value,
            "evidence": self.evidence,
            "withholds_verdict": self.withholds,
            "refusals": [refusal.as_json() for refusal in self.refusals],
        }


@dataclass(frozen=True)
class File:
    """A file of the package that was read. sha256 is None where it was not read to its end."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Histogram:
    """counts[i] values lie in [edges[i], edges[i + 1]); what lies beyond is in the outermost two."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class TensorReport:
    """What one tensor of the container showed. figures: name -> JSON value; which ones depends on the role."""

    name: str
    stored_as: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    encoding: str
    figures: dict[str, Any]
    scales: Histogram | None = None
    ratios: Histogram | None = None


@dataclass(frozen=True)
class Gate:
    """The gate's result on one package. facts: generation, encoding and sizes, as far as the config could be read."""

    checks: tuple[Check, ...]
    files: tuple[File, ...] = ()
    tensors: tuple[TensorReport, ...] = ()
    facts: dict[str, Any] | None = None
    variants: tuple[Variant, ...] = ()
    remarks: tuple[Remark, ...] = ()
    bytes_read: int = 0

    @property
    def verdict(self) -> Verdict:
        if any(check.id == SETTLED and check.outcome == Outcome.UNDETERMINED for check in self.checks):
            # What the other checks refuse may be only half written.
            return Verdict.NO_VERDICT
        if self.refusals:
            return Verdict.REFUSED
        if any(check.outcome == Outcome.UNDETERMINED and check.withholds for check in self.checks):
            return Verdict.NO_VERDICT
        return Verdict.PASS

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Every reason of every failing check."""
        return tuple(refusal for check in self.checks for refusal in check.refusals)

    def of(self, outcome: Outcome) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.outcome == outcome)

    @property
    def sentence(self) -> str:
        """The verdict for a person."""
        passed, applied = len(self.of(Outcome.PASS)), len(self.checks) - len(self.of(Outcome.NOT_APPLICABLE))
        open_checks = [check.title for check in self.of(Outcome.UNDETERMINED)]
        said = f"undetermined: {', '.join(open_checks)}" if open_checks else ""
        left = len(self.of(Outcome.NOT_RUN))
        match self.verdict:
            case Verdict.PASS:
                parts = [f"passes {passed} of {applied} checks", said]
            case Verdict.REFUSED:
                parts = [f"fails {len(self.of(Outcome.REFUSED))} of {applied} checks"]
                parts += [f"{left} could not be run" if left else "", said]
            case Verdict.NO_VERDICT:
                parts = [f"undetermined by {len(open_checks)} of {applied} checks: {', '.join(open_checks)}"]
        return "; ".join(part for part in parts if part)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "gate": f"draftmill {__version__}",
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "package": self.facts or {},
            "files": [asdict(file) for file in self.files],
            "bytes_read": self.bytes_read,
            "checks": [check.as_json() for check in self.checks],
            "variants": [asdict(variant) for variant in self.variants],
            "remarks": [remark.as_json() for remark in self.remarks],
            "tensors": [asdict(tensor) for tensor in self.tensors],
        }
