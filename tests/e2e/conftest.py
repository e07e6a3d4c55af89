"""One hub and one Prefect server for all whole runs; a work folder and a store for each test."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.hub.server import serve
from flows.prefect_server import prefect_server
from tests.e2e.mill import Mill, MillMaker, write_hub


@pytest.fixture(scope="session")
def hub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    write_hub(root)
    return root


@pytest.fixture(scope="session")
def hub(hub_folder: Path) -> Iterator[str]:
    with serve(hub_folder) as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def prefect_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the private server of these tests keeps its database."""
    state = tmp_path_factory.mktemp("prefect")
    before = dict(os.environ)
    with prefect_server(state):
        yield state
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def mill(tmp_path: Path, hub: str, prefect_state: Path) -> MillMaker:
    def make(store: str | None = None, **environment: str) -> Mill:
        return Mill(tmp_path / "work", store or str(tmp_path / "store"), hub, environment)

    return make
