"""Where the control plane itself looks: the hub or mirror that an order names, with the run's token."""

from collections.abc import Mapping
from pathlib import Path

from draftmill.hub.source import Source, source_at


def source_of(hub: str, secrets: Mapping[str, Path]) -> Source:
    """secrets: as `flows.secrets.secret_files` gives them. Raises BadConfiguration."""
    token = secrets.get("hf_token")
    return source_at(hub, token.read_text() if token else None)
