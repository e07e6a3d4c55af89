"""Folders, files and names as options: never the empty text, which the file system takes for where one is.

For typer's `parser`.
"""

from pathlib import Path

import typer


def folder(text: str | Path) -> Path:
    """Raises BadParameter."""
    return Path(_checked(text, "name a folder ('.' is this one)"))


def file_path(text: str | Path) -> Path:
    """Raises BadParameter."""
    return Path(_checked(text, "name a file, or leave it away"))


def filled(text: str) -> str:
    """Raises BadParameter."""
    return str(_checked(text, "name what you mean, or leave it away"))


def _checked(text: str | Path, advice: str) -> str | Path:
    if not str(text).strip():
        raise typer.BadParameter(f"is empty; {advice}")
    return text
