"""How long work tells how far it is: one callable, so that the library draws nothing itself."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""(what, done, total): what is being worked on, units done, units in all (bytes unless the name says other)."""


def silent(what: str, done: int, total: int) -> None:
    """Says nothing."""
