"""What an order leaves open is the worker's own: where jobs run, the store, the hub, the folders.

A deployment's parameters cross hosts, and these differ between them. The command line has the same variables.
"""

import os
from collections.abc import Callable
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
    return Field(default_factory=lambda: _own(catalogue_path))


def devices_path() -> Path | None:
    given = os.environ.get("DRAFTMILL_DEVICES")
    return Path(given) if given else _own(lambda: config_path("devices.yaml"))


def _own(find: Callable[[], Path]) -> Path | None:
    """None where nobody names such a file and there is none."""
    with suppress(BadConfiguration):
        return find()
    return None
