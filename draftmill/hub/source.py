"""Where files come from: a hub, a mirror folder, or a plain folder."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from draftmill.outcome import BadConfiguration


@dataclass(frozen=True)
class Hub:
    """endpoint: http(s) address, as HF_ENDPOINT. token: given to this endpoint only. stall_s: seconds without a byte
    after which a connection is given up; None takes huggingface_hub's (HF_HUB_DOWNLOAD_TIMEOUT).

    Raises BadConfiguration.
    """

    endpoint: str
    token: str | None = field(default=None, repr=False)
    stall_s: float | None = None

    def __post_init__(self) -> None:
        address = urlsplit(self.endpoint)
        if address.scheme not in ("http", "https") or not address.hostname or address.query or address.fragment:
            sentence = f"The hub's endpoint {self.endpoint!r} is not an http(s) address; look at HF_ENDPOINT."
            raise BadConfiguration(sentence, code="hub.endpoint")
        if address.username or address.password:
            raise BadConfiguration("The hub's endpoint holds credentials; give them as HF_TOKEN.", code="hub.endpoint")
        # An HTTP client that refuses such a header shows its value in the error.
        if self.token is not None and not re.fullmatch(r"[\x21-\x7e]+", self.token):
            sentence = "The hub token is empty or holds spaces or odd characters; copy it again."
            raise BadConfiguration(sentence, code="hub.token")
        object.__setattr__(self, "endpoint", self.endpoint.rstrip("/"))

    def page(self, repo: str | None) -> str:
        """Where a person reads about the repository and asks for access."""
        return f"{self.endpoint}/{repo}"


@dataclass(frozen=True)
class Mirror:
    """A folder that holds `<owner>/<repo>/`, for closed networks."""

    root: Path


@dataclass(frozen=True)
class Folder:
    """One model's own folder."""

    root: Path


Source = Hub | Mirror | Folder


def choose_source(
    *,
    endpoint: str | None = None,
    mirror: str | Path | None = None,
    folder: str | Path | None = None,
    token: str | None = None,
) -> Source:
    """Exactly one of endpoint, mirror (a folder, or its file:/// address) and folder. Raises BadConfiguration."""
    given = [name for name, value in (("endpoint", endpoint), ("mirror", mirror), ("folder", folder)) if value]
    if len(given) != 1:
        sentence = f"Name one source: endpoint, mirror or folder; got {', '.join(given) or 'none'}."
        raise BadConfiguration(sentence, code="hub.source")
    if endpoint:
        return Hub(endpoint, token)
    root = _path(mirror or folder or "")
    if not root.is_dir():
        raise BadConfiguration(f"The {given[0]} {root} is not a folder.", code="hub.source")
    return Mirror(root) if mirror else Folder(root)


def source_at(address: str, token: str | None) -> Source:
    """The hub at an http(s) address, or the mirror at a file:/// one, which needs no token. Raises BadConfiguration."""
    if address.startswith("file://"):
        return choose_source(mirror=address)
    return choose_source(endpoint=address, token=token)


def given_token() -> str | None:
    """What HF_TOKEN_FILE holds, else HF_TOKEN. Raises BadConfiguration where that file cannot be read."""
    place = os.environ.get("HF_TOKEN_FILE")
    try:
        return (Path(place).read_text() if place else os.environ.get("HF_TOKEN", "")).strip() or None
    except (OSError, UnicodeDecodeError) as error:
        sentence = f"HF_TOKEN_FILE names {place}, which cannot be read as text; mend it, or unset it."
        raise BadConfiguration(sentence, code="hub.token_file", where=str(place)) from error


def _path(place: str | Path) -> Path:
    if isinstance(place, Path) or "://" not in place:
        return Path(place)
    address = urlsplit(place)
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        raise BadConfiguration(f"{place!r} is not a file:/// address.", code="hub.source")
    return Path(unquote(address.path))
