"""The gate gated: every check is shown a package that only it may catch, and every sound package has to pass."""

import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_result import Outcome, Verdict
from draftmill.dflash.gate_table import BY_ID
from draftmill.dflash.selftest_controls import BASES, CONTROLS, Control
from draftmill.progress import Progress, silent

CAUGHT = (Outcome.REFUSED, Outcome.UNDETERMINED)


@dataclass(frozen=True)
class Row:
    """One control. caught: the checks that did not pass it. verdict: on the spoiled package."""

    check: str
    what: str
    base: str
    caught: tuple[str, ...]
    verdict: str

    @property
    def sound(self) -> bool:
        return self.caught == (self.check,)


@dataclass(frozen=True)
class SelfTest:
    """uncontrolled: checks that no control shows at work. unsound: bases that do not pass, and by what."""

    rows: tuple[Row, ...]
    uncontrolled: tuple[str, ...]
    unsound: dict[str, tuple[str, ...]]

    @property
    def passed(self) -> bool:
        return not self.uncontrolled and not self.unsound and all(row.sound for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "controls": [asdict(row) | {"sound": row.sound} for row in self.rows],
            "uncontrolled": list(self.uncontrolled),
            "unsound": {base: list(caught) for base, caught in self.unsound.items()},
        }


def run_selftest(controls: tuple[Control, ...] = CONTROLS, progress: Progress = silent) -> SelfTest:
    """Runs every control on a copy of its sound package, in a temporary folder. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="draftmill-selftest-") as place:
        folder = Path(place)
        unsound = {}
        for number, (base, write) in enumerate(BASES.items()):
            write(folder / f"sound-{number}")
            result = gate(folder / f"sound-{number}")
            if result.verdict != Verdict.PASS or result.of(Outcome.UNDETERMINED):
                unsound[base] = tuple(check.id for outcome in CAUGHT for check in result.of(outcome))
        rows = []
        for number, control in enumerate(controls):
            progress(control.check, number, len(controls))
            rows.append(_run(control, folder / f"sound-{list(BASES).index(control.base)}", folder / "spoiled"))
        progress("controls", len(controls), len(controls))
    shown = {control.check for control in controls}
    return SelfTest(tuple(rows), tuple(check for check in BY_ID if check not in shown), unsound)


def _run(control: Control, sound: Path, spoiled: Path) -> Row:
    shutil.copytree(sound, spoiled)
    try:
        control.change(spoiled)
        waiting = [control.during] if control.during else []

        def interfere(what: str, done: int, total: int) -> None:
            while waiting:
                waiting.pop()(spoiled)

        result = gate(spoiled, interfere)
    finally:
        shutil.rmtree(spoiled)
    caught = tuple(check.id for check in result.checks if check.outcome in CAUGHT)
    return Row(control.check, control.what, control.base, caught, result.verdict.value)
