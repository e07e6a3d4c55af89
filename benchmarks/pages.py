"""How large index.html is over 10,000 drafters, how long it takes to make, to open and to sort in Chromium.

python -m benchmarks.pages [--rows 10000]

Rows are simulated (no figure in them was measured): every third was measured on two devices, over six kinds of prompt.
The ratio is of the time that a person waits for the sorted page to the 10 s that are the goal.
"""

import argparse
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from draftmill.reports.catalogue_page import catalogue_page
from draftmill.store.index import Accepted, Measurement, Quant, Ratio, Reason, Row, Span, index_of
from draftmill.store.manifest import TOP
from tests.support.browser import Tab, open_browser

KINDS = ("chat", "code", "explanation", "maths", "summary", "translation")
START = datetime(2026, 1, 1, tzinfo=UTC)
GOAL_S = 10.0


def measurement(number: int, device: str) -> Measurement:
    digest = f"{number:064x}"
    return Measurement(
        report=f"reports/measure/{number}-{device}/report.json",
        what="speed",
        run=str(number),
        started="2026-01-01T12:00:00+00:00",
        device=device,
        engine_device="simulated",
        build="simulated",
        regime=digest[::-1],
        draft=digest,
        target=digest,
        target_name="simulated",
        n_max=4,
        n_min=0,
        p_min=0.0,
        word="faster",
        sentence="simulated",
        ratio=Ratio(value=1 + number % 97 / 100, low=1.0, high=2.0, level=0.95, pairs=20),
        lossless="identical",
        acceptance=tuple(
            Accepted(
                kind=kind,
                accepted=number % 83,
                offered=100,
                rounds=50,
                span=Span(low=0.1, high=0.9, level=0.95, prompts=10),
            )
            for kind in (None, *KINDS)
        ),
    )


def row(number: int) -> Row:
    passed = number % 3 != 1
    return Row(
        kind="model",
        entry=f"owner{number % 50}/PARD-Simulated-{number}-0.6B",
        family="PARD" if passed else "Gumiho",
        size=f"{0.1 + number % 80 / 10:.1f}B",
        route="gguf",
        verdict="pass" if passed else "refused",
        reason=None if passed else Reason(code="simulated.reason", sentence="Simulated."),
        targets=("Qwen/Qwen3-8B", "Qwen/Qwen3-14B"),
        quants=(Quant(encoding="Q4_K_M", key=f"models/{number}", size=number, sha256=f"{number:064x}"),),
        licence="Apache-2.0",
        manifest=None,
        commit=f"{number:040x}",
        recipe=f"{number:064x}",
        measurements=(measurement(number, "cpu"), measurement(number, "xdna2")) if number % 3 == 0 else (),
        created=START + timedelta(minutes=number),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    index = index_of(row(number) for number in range(rows))
    pages = {(each.kind, each.entry): f"{TOP[each.kind]}/{each.entry}/index.html" for each in index.rows}
    begun = time.perf_counter()
    page = catalogue_page(index, "0" * 64, pages)
    made = time.perf_counter() - begun
    print(f"{rows} drafters: index.json {len(index.to_bytes()) / 1e6:.1f} MB, index.html {len(page) / 1e6:.1f} MB, "
          f"made in {made:.1f} s")  # fmt: skip
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder) / "index.html"
        place.write_text(page)
        with open_browser(Path(folder) / "profile") as browser:
            tab = Tab(browser)
            begun = time.perf_counter()
            tab.open(place.as_uri())
            tab.run("document.body.offsetHeight")
            opened = time.perf_counter() - begun
            begun = time.perf_counter()
            tab.run("document.querySelector('th[data-key=\"ratio:cpu\"] button').click(); document.body.offsetHeight")
            sort = time.perf_counter() - begun
            begun = time.perf_counter()
            tab.run("(e => {e.value = 'owner7'; e.dispatchEvent(new Event('input'))})(document.getElementById('q'));"
                    "document.body.offsetHeight")  # fmt: skip
            find = time.perf_counter() - begun
    waited = opened + sort
    print(f"opened in {opened:.1f} s, sorted in {sort:.2f} s, filtered in {find:.2f} s")
    print(f"opened and sorted / goal of {GOAL_S:.0f} s: {waited / GOAL_S:.2f}")


if __name__ == "__main__":
    main()
