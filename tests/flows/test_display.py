"""The bars of a run."""

import io

import pytest
from rich.console import Console

from flows.display import Terminal


@pytest.mark.parametrize(
    ("how", "mark"), [("ok", "✓"), ("created", "✓"), ("there already", "✓"), ("refused", "✗"), ("failed", "✗")]
)
def test_the_mark_of_an_ended_job_says_whether_it_went_well(how: str, mark: str) -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, force_terminal=True, width=100)) as display:
        display.started("convert", "no run before")
        display.ended("convert", how)
    last = out.getvalue().rpartition("\r")[2]
    assert how in last
    assert [sign for sign in "✓✗" if sign in last] == [mark]


def test_a_job_from_the_cache_went_well() -> None:
    out = io.StringIO()
    with Terminal(Console(file=out, force_terminal=True, width=100)) as display:
        display.skipped("convert", "finished before")
    assert "✓" in out.getvalue()
