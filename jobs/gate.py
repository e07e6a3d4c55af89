"""gate: is this FastFlowLM draft package what it says it is? Input `package`; parameters `title` (owner/repo) and
`left_aside` (files of the package that were not downloaded).

Outputs: gate.json, report.html. Facts: verdict, sentence, gate (the content of gate.json, for a refused package too).
A refused package ends the job with every reason; one on which there is no verdict ends it as a failure to read.
"""

from importlib.metadata import version

import draftmill
from draftmill.dflash.gate import gate
from draftmill.dflash.gate_result import Outcome, Verdict
from draftmill.outcome import BadConfiguration, InputOutput, Refused
from draftmill.reports.gate_files import write_gate
from jobs.contract import Job, main


def work(job: Job) -> None:
    title = job.parameters.get("title", job.input("package").name)
    if not isinstance(title, str):
        raise BadConfiguration(f"parameter title is {title!r}; give the package's owner/repo", code="gate.title")
    left_aside = job.parameters.get("left_aside", [])
    if not isinstance(left_aside, list) or not all(isinstance(each, str) for each in left_aside):
        raise BadConfiguration(f"parameter left_aside is {left_aside!r}; give a list of paths", code="gate.left_aside")
    job.tool("draftmill", draftmill.__version__)
    job.tool("numpy", version("numpy"))
    result = gate(job.input("package"), job.progress, left_aside=left_aside)
    value = result.as_json()
    job.fact("verdict", result.verdict.value)
    job.fact("sentence", result.sentence)
    job.fact("gate", value)
    write_gate(job.out, value, title)
    if result.verdict == Verdict.REFUSED:
        raise Refused(*result.refusals)
    if result.verdict == Verdict.NO_VERDICT:
        reasons = "; ".join(check.evidence for check in result.of(Outcome.UNDETERMINED) if check.withholds)
        raise InputOutput(f"No verdict: {reasons}.", code="gate.no_verdict", where=title)


if __name__ == "__main__":
    main("gate", work)
