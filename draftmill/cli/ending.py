"""How a verb ends where JSON was asked for: one object on standard output, whatever the ending."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from draftmill.outcome import MillError, Refused

REFUSED_OR_FAILED = 1


@contextmanager
def ending(as_json: bool) -> Iterator[None]:
    """A refusal or failure is JSON on standard output too where that was asked for."""
    try:
        yield
    except MillError as error:
        if not as_json:
            raise
        refusals = [refusal.as_json() for refusal in error.refusals] if isinstance(error, Refused) else []
        outcome = "refused" if refusals else "failed"
        print_json({"outcome": outcome, "code": error.code, "error": str(error), "refusals": refusals})
        raise typer.Exit(REFUSED_OR_FAILED) from None


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1))
