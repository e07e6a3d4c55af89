"""A publisher that is killed with SIGKILL at its n-th step, in a child process."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from draftmill.progress import Progress, silent
from draftmill.store.bodies import Body
from draftmill.store.interface import Creation, Store
from draftmill.store.publish import publish
from tests.store.samples import Publication
from tests.support.waiting import GUARD_S


class _Killing:
    """Another store's face. A step is a piece or part that was written, and each create before and after."""

    def __init__(self, store: Store, at: int) -> None:
        self._store, self._left = store, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _step(self, *_: object) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def create(self, key: str, body: Body, sha256: str, progress: Progress = silent) -> Creation:
        self._step()
        creation = self._store.create(key, body, sha256, self._step)
        self._step()
        return creation


def publish_until_killed(open_it: Callable[[], Store], publication: Publication, step: int) -> bool:
    """Whether the publisher was killed at `step`; False when it was done before."""

    def run() -> None:
        publish(_Killing(open_it(), step), publication.files, publication.manifest)  # type: ignore[arg-type]

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(GUARD_S)
    assert child.exitcode in (0, -signal.SIGKILL)
    return child.exitcode != 0
