"""Where the control plane itself looks: the hub or mirror that an order names, with the run's token."""

from collections.abc import Mapping
from pathlib import Path

from draftmill.hub.source import Source, choose_source


def source_of(hub: str, secrets: Mapping[str, Path]) -> Source:
    """secrets: as `flows.secrets.secret_files` gives them. Raises BadConfiguration."""
    if hub.startswith("file://"):
        return choose_source(mirror=hub)
    token = secrets.get("hf_token")
    return choose_source(endpoint=hub, token=token.read_text() if token else None)
