"""The pipeline's verbs: what they do not take."""

import pytest
import typer
from typer.testing import CliRunner

from flows.catalogue_command import app as catalogue
from flows.commands import convert
from flows.gc_command import gc


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", ""],
        ["convert", "a/b", "--store", ""],
        ["convert", "a/b", "--hub", " "],
        ["convert", "a/b", "--licence-file", ""],
        ["catalogue", "plan", "--catalogue", ""],
        ["catalogue", "run", "--sign-key", ""],
        ["gc", "--store", ""],
    ],
)
def test_an_empty_option_is_wrong_usage(arguments: list[str]) -> None:
    app = typer.Typer()
    app.command()(convert)
    app.command()(gc)
    app.add_typer(catalogue, name="catalogue")
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, "is empty" in result.stderr) == (2, True)
