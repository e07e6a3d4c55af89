"""preflight: is the device ready to be measured on, seen from where a measurement would run?

No inputs. Parameter `device`: a profile (draftmill.measurement.device.profiles.Device) as JSON. Output: preflight.json.
Facts: preflight (its content). A device that is not ready ends the job as a refusal that names all that is missing.
"""

import json

from pydantic import ValidationError

from draftmill.measurement.device.preflight import preflight
from draftmill.measurement.device.profiles import Device
from draftmill.outcome import BadConfiguration
from draftmill.whole_file import write_whole
from jobs.contract import Job, main


def work(job: Job) -> None:
    try:
        device = Device.model_validate(job.parameters.get("device"))
    except ValidationError as error:
        raise BadConfiguration(f"parameter device is no profile: {error}", code="preflight.device") from error
    found = preflight(device)
    if engine := found.facts.get("engine"):
        job.tool(engine["name"], engine["version"] or "unknown", engine["sha256"])
    job.fact("preflight", found.as_json())
    write_whole(job.out / "preflight.json", json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n")
    found.check()


if __name__ == "__main__":
    main("preflight", work)
