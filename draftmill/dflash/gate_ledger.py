"""Where checks put what they found, until every one has its outcome."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from draftmill.dflash.gate_result import Check, Outcome
from draftmill.dflash.gate_table import BY_ID, CHECKS
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal

NOT_REACHED = "not reached: what was refused before it has to be mended first"


@dataclass
class _Entry:
    findings: Findings = field(default_factory=Findings)
    measured: Any = None
    evidence: str = ""
    place: str = ""
    outcome: Outcome | None = None
    withholds: bool = False
    stopped: str = ""


class Ledger:
    """Outcomes by check. A check that said nothing was not reached: nothing is ever taken as passed."""

    def __init__(self) -> None:
        self._entries = {check.id: _Entry() for check in CHECKS}

    def passes(self, check: str, measured: Any, evidence: str, place: str = "") -> None:
        """The check was made; it passes unless it also has refusals."""
        entry = self._entries[check]
        entry.measured, entry.evidence, entry.place = measured, evidence, place or entry.place
        entry.outcome = entry.outcome or Outcome.PASS

    def refuse(self, check: str, *refusals: Refusal) -> None:
        self._entries[check].findings.extend(refusals)

    def refused(self, check: str) -> bool:
        return bool(self._entries[check].findings)

    def undetermined(self, check: str, measured: Any, evidence: str, *, withholds: bool) -> None:
        entry = self._entries[check]
        entry.measured, entry.evidence, entry.outcome = measured, evidence, Outcome.UNDETERMINED
        entry.withholds = withholds

    def skip(self, check: str, why: str) -> None:
        """The check does not apply to this package."""
        entry = self._entries[check]
        entry.evidence, entry.outcome = why, Outcome.NOT_APPLICABLE

    def stop(self, check: str, why: str) -> None:
        """The check cannot be made, or not on all that it has to look at: it does not pass, and may still refuse.
        why: a clause. The first reason counts."""
        entry = self._entries[check]
        entry.stopped = entry.stopped or why

    def stop_unsaid(self, checks: Iterable[str], why: str) -> None:
        """Those of the checks about which nothing was said cannot be made."""
        for check in checks:
            entry = self._entries[check]
            if entry.outcome is None and not entry.findings:
                self.stop(check, why)

    def skip_unless_made(self, check: str, why: str) -> None:
        entry = self._entries[check]
        if entry.outcome is None and not entry.findings and not entry.stopped:
            self.skip(check, why)

    @property
    def spoke(self) -> bool:
        """Whether anything was refused or withholds the verdict."""
        return any(entry.findings or entry.withholds for entry in self._entries.values())

    def checks(self) -> tuple[Check, ...]:
        """Every check with its outcome, in the table's order."""
        stopped = self.spoke
        return tuple(self._check(name, entry, stopped) for name, entry in self._entries.items())

    def _check(self, name: str, entry: _Entry, stopped: bool) -> Check:
        declared = BY_ID[name]
        refusals = entry.findings.refusals
        outcome, evidence, measured, withholds = entry.outcome, entry.evidence, entry.measured, entry.withholds
        because = f"not run, because {entry.stopped}"
        if refusals:
            first, more = refusals[0], len(refusals) - 1
            outcome, measured, withholds = Outcome.REFUSED, first.measured if measured is None else measured, False
            evidence = f"{first.where}: {first.sentence}" + (f" ({more} more)" if more else "")
        elif outcome is None:
            # Without a refusal before it, a check that was left out is a fault of the gate: then nothing is said.
            outcome = Outcome.NOT_RUN if stopped else Outcome.UNDETERMINED
            evidence, withholds = because if entry.stopped else NOT_REACHED, not stopped
        elif entry.stopped and not withholds and outcome != Outcome.NOT_APPLICABLE:
            # What it made of the rest is no pass, and without a refusal elsewhere nothing can be said.
            outcome, withholds = Outcome.NOT_RUN if stopped else Outcome.UNDETERMINED, not stopped
            evidence = because
        return Check(
            name,
            declared.title,
            entry.place or (refusals[0].where if refusals else declared.place),
            measured,
            declared.expected,
            outcome,
            evidence,
            refusals,
            withholds,
        )
