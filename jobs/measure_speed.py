"""measure_speed: see jobs/measuring.py."""

from jobs.contract import Job, main
from jobs.measuring import measure


def work(job: Job) -> None:
    measure(job, "speed")


if __name__ == "__main__":
    main("measure_speed", work)
