"""The servers of a measurement's arms: all up at once, or one at a time where memory does not hold them."""

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

from draftmill.measurement.servers.flags import Settings
from draftmill.measurement.servers.providers import Provider, What
from draftmill.measurement.servers.server import Server

A = TypeVar("A", bound=str)


class Arms(Generic[A]):
    """A context manager; a server starts when its arm is first asked for and never outlives the block.

    together: whether the others stay up. whats: what ran, by arm, from each arm's last start.
    """

    def __init__(self, provider: Provider, settings: Mapping[A, Settings], *, run: str, together: bool) -> None:
        self._provider = provider
        self._settings = settings
        self._run = run
        self._together = together
        self._stack = ExitStack()
        self._up: dict[A, Server] = {}
        self.whats: dict[A, What] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.clear()
        self._stack.close()

    def is_up(self, arm: A) -> bool:
        return arm in self._up

    def server(self, arm: A) -> Server:
        """The arm's server, started where it is not up. Raises what Server raises."""
        if arm not in self._up:
            if not self._together:
                self._up.clear()
                self._stack.close()
            server = Server(self._provider, self._settings[arm], run=self._run)
            self._up[arm] = self._stack.enter_context(server)
            self.whats[arm] = server.what
        return self._up[arm]
