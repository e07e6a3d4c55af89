"""What an order leaves open is the worker's own: where jobs run, the store, the hub, the folders.

A deployment's parameters cross hosts, and these differ between them. The command line has the same variables.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from draftmill.configuration import DEFAULT_STORE, PUBLIC_HUB, config_path
from draftmill.outcome import BadConfiguration


def runner_field() -> Any:
    return Field(default_factory=lambda: os.environ.get("DRAFTMILL_RUNNER", "process"), validate_default=True)


def hub_field() -> Any:
    return Field(default_factory=lambda: os.environ.get("HF_ENDPOINT", PUBLIC_HUB))


def store_field() -> Any:
    return Field(default_factory=lambda: os.environ.get("DRAFTMILL_STORE", DEFAULT_STORE))


def work_field() -> Any:
    return Field(default_factory=lambda: Path(os.environ.get("DRAFTMILL_WORK", "mill-work")).absolute())


def catalogue_path() -> Path:
    given = os.environ.get("DRAFTMILL_CATALOGUE")
    return Path(given) if given else config_path("catalogue.yaml")


def catalogue_field() -> Any:
    """None where nobody names one and there is none."""

    def found() -> Path | None:
        with suppress(BadConfiguration):
            return catalogue_path()
        return None

    return Field(default_factory=found)
