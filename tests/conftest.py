"""How the whole suite runs: file by file on every core, what shares an engine on one, locks of its own."""

import os
from pathlib import Path

import pytest

from draftmill.measurement.device.lock import LOCKS


@pytest.fixture(autouse=True, scope="session")
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A measurement elsewhere on this machine holds no device of these tests."""
    os.environ[LOCKS] = str(tmp_path_factory.mktemp("locks"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: tests of containers would sweep one another's, and files share what they set up."""
    for item in items:
        group = (
            "containers"
            if item.get_closest_marker("docker")
            else str(Path(item.path).relative_to(item.config.rootpath))
        )
        item.add_marker(pytest.mark.xdist_group(group))
