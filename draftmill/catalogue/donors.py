"""Donor of a repository, from config/catalogue.yaml."""

from pathlib import Path

import yaml

from draftmill.outcome import BadConfiguration


def donor_of(repo: str, catalogue: Path) -> str | None:
    """`owner/repo@revision` whose tokenizer `repo` borrows, or None when the catalogue names none."""
    if not catalogue.exists():
        return None
    try:
        donors = (yaml.safe_load(catalogue.read_text()) or {}).get("donors", {})
    except (yaml.YAMLError, AttributeError) as error:
        raise BadConfiguration(f"{catalogue} is not readable: {error}", where=str(catalogue)) from None
    found = donors.get(repo)
    if found is not None and not isinstance(found, str):
        raise BadConfiguration(f"{catalogue}: donors.{repo} must be owner/repo@revision, not {found!r}")
    return found
