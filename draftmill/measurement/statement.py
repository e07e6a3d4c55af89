"""What every record of a measurement states beside its samples, gathered around the run."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from draftmill import __version__
from draftmill.measurement.arms import Arms
from draftmill.measurement.device.memory import memory_rise, read_memory, settled_memory
from draftmill.measurement.machine import read_machine
from draftmill.measurement.plan import Plan
from draftmill.measurement.record import Memory, Prompted, Setup
from draftmill.measurement.subject import Encoded, describe, ran, regime_of
from draftmill.outcome import Refused, Unavailable
from draftmill.speculation.regime import Route
from draftmill.tokenizers.sources import compare_pair


def check_pair(target: Path, draft: Path) -> tuple[str, ...]:
    """The remarks on a pair that the engine runs as one. Raises Refused with all that is in the way of it."""
    pairing = compare_pair(target, draft)
    if pairing.refusals:
        raise Refused(*pairing.refusals)
    return pairing.remarks


class Statement:
    """Made before any server starts: reads both files and refuses a pair that the engine would not run as one.

    Raises Refused with every finding, OSError for a file that cannot be read.
    """

    def __init__(self, plan: Plan, route: Route) -> None:
        self._plan = plan
        self._route: Route = route
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._files = describe(plan.settings.model), describe(plan.drafting.model)
        self._pairing = check_pair(plan.settings.model, plan.drafting.model)
        self.together = plan.fits_together()
        self._before = read_memory(plan.device)

    def complete(self, arms: Arms[Any], prompts: Sequence[Encoded], remarks: Sequence[str]) -> dict[str, Any]:
        """The members of `Measured`, once every server has ended. Raises Unavailable: measurement.engine_changed."""
        plan, whats = self._plan, arms.whats
        if len({what.digest for what in whats.values()}) != 1:
            raise Unavailable(
                "the engine's file changed between the arms: leave it alone and measure again.",
                code="measurement.engine_changed",
            )
        after = settled_memory(plan.device, self._before)
        what = next(iter(whats.values()))
        backend = plan.provider.name
        machine = read_machine()
        if plan.settings.threads > machine.cores:
            crowd = f"{plan.settings.threads} threads on {machine.cores} cores: they wait for one another"
            remarks = (*remarks, crowd)
        return {
            "run": plan.run,
            "started": self._started,
            "tool": f"draftmill {__version__}",
            "target": self._files[0],
            "draft": self._files[1],
            "pairing": self._pairing,
            "regime": regime_of(
                self._route,
                self._files,
                plan.settings,
                plan.drafting,
                prompts,
                plan.budget,
                plan.seed,
                what,
                backend,
                plan.device.name,
            ),
            "setup": Setup(
                device=plan.device.name,
                together=self.together,
                block=1 if self.together else plan.block,
                warm_up=plan.warm_up,
                chat=plan.chat,
                context=plan.settings.context,
                near_tie=plan.near_tie,
            ),
            "machine": machine,
            "memory": Memory(before=self._before, after=after, remarks=memory_rise(self._before, after)),
            "prompts": tuple(Prompted(name=each.name, kind=each.kind, tokens=len(each.tokens)) for each in prompts),
            "ran": {arm: ran(backend, found) for arm, found in whats.items()},
            "remarks": tuple(remarks),
        }
