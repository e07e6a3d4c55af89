"""The command in a report: one that the command line takes, with what the record states."""

import shlex
from typing import Any

import pytest
import typer.main

from draftmill.cli.measure import app
from draftmill.measurement.record import ALONE, Accepted, Speed
from draftmill.reports.command_line import command_line
from tests.support import measured


def taken(record: Speed | Accepted) -> dict[str, Any]:
    """The options as `draftmill measure` understands them."""
    program, verb, what, *given = command_line(record)
    assert (program, verb) == ("draftmill", "measure")
    group: Any = typer.main.get_command(app)
    parameters: dict[str, Any] = group.commands[what].make_context(what, given).params
    return parameters


def test_a_speed_measurement_is_asked_for_with_all_that_changes_its_figures() -> None:
    setup = measured.speed().setup.model_copy(update={"chat": True, "warm_up": 3, "together": False, "context": 512})
    regime = measured.speed().regime.model_copy(update={"p_min": 0.75, "n_min": 1, "n_max": 6, "seed": 7})
    found = taken(measured.speed(setup=setup, regime=regime))
    expected = {
        "target": "target.gguf",
        "draft": "draft.gguf",
        "device": "cpu",
        "form": "chat",
        "budget": 64,
        "n_max": 6,
        "n_min": 1,
        "p_min": 0.75,
        "threads": 2,
        "context": 512,
        "seed": 7,
        "spec_type": "draft-simple",
        "pairs": 10,
        "warm_up": 3,
        "servers": "one",
    }
    assert {name: str(value) if name in ("target", "draft") else value for name, value in found.items()
            if name in expected} == expected  # fmt: skip
    assert found["engine"] is None


def test_both_routes_are_asked_for_by_their_names() -> None:
    gated = taken(measured.by_counters())
    assert (gated["route"], gated["n_min"], gated["p_min"]) == ("counters", 0, 0.0)
    record = measured.token_exact()
    regime = record.regime.model_copy(update={"n_min": None, "p_min": None})
    assert "--p-min" not in command_line(record.model_copy(update={"regime": regime}))
    assert taken(record)["route"] == "token-exact"


def test_an_engine_of_the_users_own_is_named_with_its_libraries() -> None:
    own = measured.ran(
        ALONE,
        provider="llama-server",
        executable="/opt/my llama/llama-server",
        environment={"LD_LIBRARY_PATH": "/opt/a:/opt/b"},
    )
    record = measured.speed(ran={ALONE: own})
    found = taken(record)
    assert str(found["engine"]) == "/opt/my llama/llama-server"
    assert [str(each) for each in found["library_path"]] == ["/opt/a", "/opt/b"]
    assert "'/opt/my llama/llama-server'" in shlex.join(command_line(record))
    profile = record.setup.model_copy(update={"device": "igpu"})
    assert "--engine" not in command_line(measured.speed(ran={ALONE: own}, setup=profile))


@pytest.mark.parametrize("make", {**measured.SPEEDS, **measured.ACCEPTANCES}.values())
def test_every_outcome_has_a_command_that_is_understood(make: Any) -> None:
    assert taken(make())["device"] == "cpu"
