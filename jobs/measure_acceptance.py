"""measure_acceptance: see jobs/measuring.py."""

from jobs.contract import Job, main
from jobs.measuring import measure


def work(job: Job) -> None:
    measure(job, "acceptance")


if __name__ == "__main__":
    main("measure_acceptance", work)
