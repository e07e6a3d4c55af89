"""The table at the end of `draftmill measure`: the figures, the remarks, and the verdict last."""

from collections.abc import Callable
from io import StringIO

import pytest
from rich.console import Console

from draftmill.cli.measure_table import show
from draftmill.measurement.record import Accepted, Memory, Speed
from tests.support import measured

OUTCOMES = {**measured.SPEEDS, **measured.ACCEPTANCES}


def shown(record: Speed | Accepted, *, width: int = 120, colour: bool = False) -> str:
    out = StringIO()
    show(record, Console(file=out, width=width, force_terminal=colour, color_system="standard" if colour else None))
    return out.getvalue()


@pytest.mark.parametrize("beginning", OUTCOMES)
def test_every_outcome_ends_with_its_sentence(beginning: str) -> None:
    assert shown(OUTCOMES[beginning]()).splitlines()[-1].startswith(beginning)


def test_the_figures_are_those_of_the_report() -> None:
    out = shown(measured.speed())
    rows = [line.split() for line in out.splitlines()]
    assert ["explanation", "5", "1.550x", "too", "few", "pairs", "no", "verdict", "(too", "few", "pairs)",
            "96.2", "%", "identical"] in rows  # fmt: skip
    assert ["tokens/s,", "only", "inside", "this", "run", "16.67", "25.17"] in rows
    acceptance = [line.split() for line in shown(measured.token_exact()).splitlines()]
    assert ["bimodality", "85.7", "%", "18/21", "85.7", "%"] in acceptance
    assert ["tokens/round,", "untruncated", "3.095", "65/21", "3.095"] in acceptance


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (measured.speed, "\x1b[32mfaster\x1b[0m"),
        (measured.slower, "\x1b[31mslower\x1b[0m"),
        (measured.too_few, "\x1b[33mno verdict\x1b[0m"),
        (lambda: measured.diverged("clear gap"), "\x1b[31mfaster\x1b[0m"),
        (measured.silent, "\x1b[31mdid not speculate\x1b[0m"),
    ],
)
def test_the_verdict_has_its_colour(make: Callable[[], Speed], code: str) -> None:
    assert shown(make(), colour=True).splitlines()[-1].startswith(code)


def test_remarks_of_the_pair_the_memory_and_the_run_are_printed() -> None:
    memory = Memory(before={}, after={}, remarks=("gtt: 2048 MiB more",))
    out = shown(measured.speed(memory=memory, pairing=("merges differ",), remarks=("on battery",)))
    for remark in ("merges differ", "gtt: 2048 MiB more", "on battery"):
        assert f"remark {remark}\n" in out


def test_names_from_a_strangers_file_colour_and_move_nothing() -> None:
    out = shown(measured.hostile(), colour=True)
    assert r"\u202egpj.\x1b[31m" in out
    assert "\u202e" not in out
    markup = measured.speed(remarks=("[red]x[/red] [/]",))
    assert "remark [red]x[/red] [/]\n" in shown(markup)


def test_it_fits_a_narrow_terminal() -> None:
    for make in OUTCOMES.values():
        tables = shown(make(), width=80).splitlines()[:-1]
        assert max(map(len, tables), default=0) <= 80
        assert "…" not in "".join(tables)
