"""A folder as an option: never the empty text, which the file system would take for the folder that one is in."""

from pathlib import Path

import typer


def folder(text: str | Path) -> Path:
    """For typer's `parser`. Raises BadParameter."""
    if not str(text).strip():
        raise typer.BadParameter("is empty; name a folder ('.' is this one)")
    return Path(text)
