"""How a job's process or container ended, and whether the result it left can be believed."""

import stat
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from flows.runners.runner import Limits
from jobs.contract import Result
from jobs.supervisor import TIMED_OUT


@dataclass
class Ending:
    """code: exit code; timed_out: ended by the runner; out_of_memory: the engine says so, of the job or a child."""

    code: int = -1
    timed_out: bool = False
    out_of_memory: bool = False


def died(job: str, code: str, sentence: str, exit_code: int = 70) -> Result:
    """The result of a job that left none: killed, timed out, out of memory."""
    return Result(job=job, outcome="failed", exit_code=exit_code, error=sentence, error_code=code)


def stopped(job: str) -> Result:
    """The result of a job whose runner was told to stop, whether it had begun or not."""
    return died(job, "stopped", f"The run was stopped before job {job} had ended.")


def read_result(job: str, folder: Path, ending: Ending, limits: Limits) -> Result:
    """The job's own result, unless the way it ended says that it cannot be believed."""
    if ending.timed_out or ending.code == TIMED_OUT:
        return died(job, "timeout", f"Job {job} ran past its limit of {limits.timeout_s:g} s and was ended.", 75)
    if ending.out_of_memory:
        sentence = f"Job {job} or a child of it ran out of memory at {limits.memory_bytes >> 20} MiB: raise the limit."
        return died(job, "oom", sentence)
    for path in folder.rglob("*"):
        if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISDIR(mode):
            return died(job, "irregular_output", f"Job {job} left {path.relative_to(folder)}, which is no plain file.")
    try:
        result = Result.model_validate_json((folder / "result.json").read_bytes())
    except FileNotFoundError:
        sentence = f"Job {job} ended with exit code {ending.code} and left no result; its last lines say more."
        return died(job, "died", sentence)
    except ValidationError as error:
        return died(job, "died", f"Job {job} left a result that is not one: {error.errors()[0]['msg']}.")
    if result.exit_code != ending.code:
        sentence = f"Job {job} states exit code {result.exit_code} but ended with {ending.code}."
        return died(job, "died", sentence)
    return result
