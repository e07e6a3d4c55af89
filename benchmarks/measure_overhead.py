"""The harness's own time a request: everything between two requests that is not the engine's, against the mock server.

python -m benchmarks.measure_overhead [--requests N]

The mock answers at once. `per sample` is the whole of a sample, the mock's own time and three or four loopback requests
included; `in requests` is from the send to the last byte of each of them; the harness's own is the rest.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from draftmill.measurement.arms import Arms
from draftmill.measurement.plan import encode
from draftmill.measurement.record import ALONE, WITH_DRAFT
from draftmill.measurement.sampling import Sampler
from draftmill.measurement.servers.client import Client
from tests.support.mock_pair import mock_plan

GOAL_MS = 2.0


class Clock:
    """Adds up the time inside Client's requests."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._request = Client._request

    def __enter__(self) -> "Clock":
        def timed(client, *args, **options):
            started = time.perf_counter()
            try:
                return self._request(client, *args, **options)
            finally:
                self.seconds += time.perf_counter() - started

        Client._request = timed
        return self

    def __exit__(self, *_: object) -> None:
        Client._request = self._request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    count = parser.parse_args().requests
    with tempfile.TemporaryDirectory() as folder:
        plan = mock_plan(Path(folder), budget=128)
        settings = {ALONE: plan.settings, WITH_DRAFT: plan.with_draft}
        with Arms(plan.provider, settings, run="overhead", together=True) as arms, Clock() as clock:
            prompts = encode(arms.server(ALONE).client, plan)
            print(f"{count} requests of 128 tokens an arm, median (95th percentile) in ms")
            for arm in (ALONE, WITH_DRAFT):
                sampler = Sampler(arms.server(arm), arm, budget=plan.budget, seed=0)
                whole, own = [], []
                for number in range(count):
                    clock.seconds, started = 0.0, time.perf_counter()
                    sampler.take(prompts[number % len(prompts)], pair=number, second=False)
                    spent = time.perf_counter() - started
                    whole.append(1000 * spent)
                    own.append(1000 * (spent - clock.seconds))
                for name, values in (("per sample", whole), ("the harness's own", own)):
                    high = statistics.quantiles(values, n=20)[-1]
                    print(f"{arm:15} {name:18} {statistics.median(values):6.3f} ({high:6.3f})")
                print(f"{arm:15} own / goal of {GOAL_MS} ms: {statistics.median(own) / GOAL_MS:.3f}")


if __name__ == "__main__":
    main()
