"""A run on a target added to what the gate says of a package: one verdict over both, each with its evidence.

The gate says that a package is well-formed, a run says what it is worth. The run's checks stand with the gate's:

run.possible   draft and target run together. Where not, there is no verdict: the target may be the wrong one.
run.lossless   the text is the target's own. A clear gap withholds the verdict: every draft is judged by the target, so
               that it is the loop or the target that fails, and nothing it counted can be relied on.
run.accepted   at least one draft was accepted. None at all is a refusal: such a package costs time and gives nothing.
"""

from typing import Any

from draftmill.dflash.gate_result import Check, Outcome
from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.lossless import Lossless
from draftmill.measurement.record import Accepted
from draftmill.outcome import MillError, Refusal, Refused

PASS, REFUSED, NO_VERDICT = "pass", "refused", "no verdict"
CLEAR_GAP: Lossless = "diverged: clear gap"
_TITLES = {
    "run.possible": "draft and target run together",
    "run.lossless": "the text is the target's own",
    "run.accepted": "drafts are accepted",
}


def with_run(gate: dict[str, Any], record: Accepted) -> dict[str, Any]:
    """gate: `Gate.as_json` of a package that passes. `run` holds word, sentence, lossless, figures and record."""
    found = acceptance_result(record)
    target = record.target.name
    gap = found.lossless == CLEAR_GAP
    parted = f"{len(record.divergences)} of {len(record.texts or ())} texts part from it: {found.lossless}"
    checks = [
        _check(
            "run.possible",
            target,
            Outcome.PASS,
            f"prompts: {len(record.prompts)}, new tokens each: {record.regime.budget}",
        ),
        _check(
            "run.lossless",
            target,
            Outcome.UNDETERMINED if gap else Outcome.PASS,
            parted if record.divergences else "token for token, on every prompt",
            measured=found.lossless,
            expected="identical, or parted at near-ties",
            withholds=gap,
        ),
        _accepted(record, gap),
    ]
    run = {
        "word": found.word,
        "sentence": found.sentence,
        "lossless": found.lossless,
        "figures": found.figures.as_json() if found.figures else None,
        "record": record.model_dump(mode="json"),
    }
    return _joined(gate, checks, f"run on {target}: {found.sentence}", run)


def without_run(gate: dict[str, Any], target: str, error: MillError) -> dict[str, Any]:
    """gate: of a package that passes, and could not be run with this target."""
    reasons = [refusal.sentence for refusal in error.refusals] if isinstance(error, Refused) else [str(error)]
    check = _check("run.possible", target, Outcome.UNDETERMINED, f"{error.code}: {' '.join(reasons)}", withholds=True)
    run = {"word": "not run", "sentence": f"{target}: {' '.join(reasons)}", "code": error.code}
    return _joined(gate, [check], f"it could not be run on {target}: {error.code}", run)


def not_run(gate: dict[str, Any]) -> dict[str, Any]:
    """gate: of a package that does not pass, which is therefore not run; its verdict stays."""
    why = "the gate does not pass the package, so it was not run"
    return gate | {"run": {"word": "not run", "sentence": why, "code": "run.gate"}}


def _accepted(record: Accepted, gap: bool) -> Check:
    answers = record.acceptance.answers if record.acceptance else ()
    offered, accepted = (sum(getattr(answer, name) for answer in answers) for name in ("offered", "accepted"))
    evidence = f"{accepted} of {offered} offered drafts"
    if gap:
        return _check("run.accepted", record.target.name, Outcome.NOT_RUN, "the run is not lossless", measured=accepted)
    if accepted:
        return _check("run.accepted", record.target.name, Outcome.PASS, evidence, measured=accepted, expected=1)
    refusal = Refusal(
        "run.nothing_accepted",
        record.target.name,
        accepted,
        f"at least one of {offered}",
        "The target accepts none of the drafts: the draft is of another target, or its taps, mask or rotation are not "
        "those it was trained with. Run it on the target it was made for.",
    )
    return _check(
        "run.accepted",
        record.target.name,
        Outcome.REFUSED,
        evidence,
        measured=accepted,
        expected=1,
        refusals=(refusal,),
    )


def _check(
    id: str,
    place: str,
    outcome: Outcome,
    evidence: str,
    *,
    measured: Any = None,
    expected: Any = None,
    refusals: tuple[Refusal, ...] = (),
    withholds: bool = False,
) -> Check:
    return Check(id, _TITLES[id], place, measured, expected, outcome, evidence, refusals, withholds)


def _joined(gate: dict[str, Any], checks: list[Check], said: str, run: dict[str, Any]) -> dict[str, Any]:
    """The gate's verdict is "pass" here, and stays it unless a check of the run says otherwise."""
    verdict = PASS
    if any(check.outcome == Outcome.UNDETERMINED for check in checks):
        verdict = NO_VERDICT
    if any(check.refusals for check in checks):
        verdict = REFUSED
    return gate | {
        "verdict": verdict,
        "sentence": f"{gate['sentence']}; {said}",
        "checks": [*gate["checks"], *(check.as_json() for check in checks)],
        "run": run,
    }
