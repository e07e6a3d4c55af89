"""Donor of a repository: whose tokenizer a weights-only one borrows."""

from pathlib import Path

from draftmill.catalogue.catalogue import load_catalogue


def donor_of(repo: str, catalogue: Path) -> str | None:
    """`owner/repo@revision` whose tokenizer `repo` borrows, or None when the catalogue names none."""
    return load_catalogue(catalogue).drafter(repo).donor if catalogue.exists() else None
