"""How the whole suite runs: file by file on every core, what shares an engine on one, the longest first, locks of its
own."""

import os
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from draftmill.measurement.device.lock import LOCKS

CONTAINERS = "mark.docker"
LONG = ("mark.slow", "mark.stock", "/e2e/", "test_catalogue_run")


# A shell that starts the suite in the background has it ignore interrupts, and so would all that the tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _own_locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A measurement elsewhere on this machine holds no device of these tests."""
    os.environ[LOCKS] = str(tmp_path_factory.mktemp("locks"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long file that comes last keeps one core busy while the others wait."""
    items.sort(key=lambda item: _rank(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files share what they set up, and tests of containers would sweep one another's.

    Not by xdist's own groups: since pytest 9.2 they are silently ignored (pytest-dev/pytest-xdist#1386).
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "containers" if _rank(config.rootpath / file) == 0 else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


@cache
def _rank(path: Path) -> int:
    text = f"{path} {path.read_text(encoding='utf-8')}"
    return 0 if CONTAINERS in text else 1 if any(sign in text for sign in LONG) else 2
