"""intake: may this folder enter? Input `model`; parameter `role`: "model", "donor" or "draft". Gives facts alone."""

from typing import Any, get_args

import draftmill
from draftmill.intake.model_folder import Role, inspect
from draftmill.outcome import BadConfiguration
from jobs.contract import Job, main


def work(job: Job) -> None:
    role: Any = job.parameters.get("role")
    if role not in get_args(Role):
        raise BadConfiguration(f"parameter role is {role!r}; give one of {get_args(Role)}", code="intake.role")
    job.tool("draftmill", draftmill.__version__)
    intake = inspect(job.input("model"), role, job.progress)
    for name, value in intake.facts().items():
        job.fact(name, value)
    intake.raise_if_refused()


if __name__ == "__main__":
    main("intake", work)
