"""What the two measuring jobs share: a request, two files, the device held, a report.

Inputs `target` and `draft`: a folder each; parameters `target_file`, `draft_file`: the GGUF in it, or the folder of a
Hugging Face target and a DFlash draft; `request`: a MeasurementRequest as JSON; `wait_s`: how long to wait for the
device. Outputs: report.json, report.md, report.html. Facts: word and sentence of the result.
"""

from importlib.metadata import version
from importlib.util import find_spec

import draftmill
from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.device.lock import device_lock
from draftmill.measurement.device.preflight import preflight
from draftmill.measurement.record import Speed
from draftmill.measurement.request import MeasurementRequest, perform, read_request
from draftmill.measurement.speed_results import speed_result
from draftmill.outcome import BadConfiguration
from draftmill.reports.measurement_files import write_report
from jobs.contract import Job


def measure(job: Job, what: str) -> None:
    request = _request(job, what)
    job.tool("draftmill", draftmill.__version__)
    job.tool("numpy", version("numpy"))
    if request.loop and find_spec("numba"):  # without it BLAS multiplies: the last bits depend on which
        job.tool("numba", version("numba"))
    target, draft = (job.input(slot) / str(job.parameters[f"{slot}_file"]) for slot in ("target", "draft"))
    wait_s = float(job.parameters.get("wait_s", 0))
    with device_lock(request.device, run=request.run, wait_s=wait_s, progress=job.progress):
        preflight(request.device).check()
        record = perform(request, target, draft, job.progress)
    for ran in {ran.digest: ran for ran in record.ran.values()}.values():
        job.tool(ran.provider, ran.build, ran.digest)
    write_report(job.out, record)
    result = speed_result(record) if isinstance(record, Speed) else acceptance_result(record)
    job.fact("word", result.word)
    job.fact("sentence", result.sentence)


def _request(job: Job, what: str) -> MeasurementRequest:
    request = read_request(job.parameters.get("request"))
    if request.what != what:
        raise BadConfiguration(f"this job measures {what}, the request asks for {request.what}", code="measure.request")
    return request
