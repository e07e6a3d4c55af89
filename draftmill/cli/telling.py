"""What a terminal is told: text from strangers' files moves no cursor, hides nothing and reorders nothing there."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from draftmill.outcome import values
from draftmill.reports.visible import visible

UNBOUND = 1 << 14
"""Columns of what has no edge."""


def printer(*, stderr: bool = False, soft_wrap: bool = True, highlight: bool = True) -> Console:
    """Standard output, or standard error. Where it is no terminal nothing is wrapped or cut: a search finds names."""
    console = Console(emoji=False, stderr=stderr, soft_wrap=soft_wrap, highlight=highlight)
    if not console.file.isatty():
        console.width = UNBOUND
    return console


def plain(text: str) -> str:
    """Text for rich's markup, to be shown as it is written; control and direction characters as escapes."""
    return escape(visible(text))


def tell(console: Console, what: str, refusal: Mapping[str, Any]) -> None:
    """A refusal, as JSON, in three lines. what: what was refused, or by what."""
    console.print(
        f"[red]{plain(what)}[/] [bold]{plain(refusal['code'])}[/] at {plain(refusal['where'])}", soft_wrap=True
    )
    console.print(f"  {plain(refusal['sentence'])}", soft_wrap=True)
    console.print(f"  {plain(values(refusal['measured'], refusal['expected']))}", soft_wrap=True)
