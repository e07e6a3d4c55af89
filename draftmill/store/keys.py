"""Which keys a store takes: those that every S3 server and every filesystem keep apart and give back unchanged."""

import re
from collections.abc import Iterable

from draftmill.outcome import Refusal, Refused

LONGEST_KEY = 1024  # bytes; S3's own limit
LONGEST_SEGMENT = 255  # bytes; of a file name on Linux
_SEGMENT = re.compile(r"[A-Za-z0-9_+=@-][A-Za-z0-9._+=@-]*")


def check_key(key: str) -> str:
    """The key itself, or Refused("store.key").

    Plain ASCII segments joined by "/", none of them empty or starting with a dot: "..", hidden files, a leading "/" and
    a trailing "/" (SeaweedFS drops the body of such an object) are all out.
    """
    segments = key.split("/")
    plain = all(_SEGMENT.fullmatch(segment) and len(segment) <= LONGEST_SEGMENT for segment in segments)
    if not plain or len(key) > LONGEST_KEY:
        raise Refused(
            Refusal(
                "store.key",
                key[:200],
                key[:200],
                "segments of A-Z a-z 0-9 . _ + = @ - that do not start with a dot, joined by /",
                "This name cannot be kept the same on every store; rename the file.",
            )
        )
    return key


_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
}


def content_type(key: str) -> str:
    """What a server that gives objects to browsers says of this one: without it a page is offered for download."""
    return _CONTENT_TYPES.get(key[key.rfind(".") :], "application/octet-stream")


def check_prefix(prefix: str) -> None:
    """Refuses what no key can start with. "" and "models/" are prefixes, and so is "models/am"."""
    if prefix:
        check_key(prefix.removesuffix("/"))


def check_keys(keys: Iterable[str]) -> None:
    """Refuses keys that cannot live beside each other: equal but for case, or one the folder of another."""
    ordered = sorted(keys)
    for key in ordered:
        check_key(key)
    refusals: list[Refusal] = []
    by_folded: dict[str, str] = {}
    for key in ordered:
        if (other := by_folded.setdefault(key.casefold(), key)) is not key:
            refusals.append(_clash(key, other, "two names that differ in more than case", "store.key_case"))
    for key in ordered:
        folded = key.casefold()
        for end in (i for i, letter in enumerate(folded) if letter == "/"):
            if (folder := by_folded.get(folded[:end])) is not None:
                refusals.append(_clash(key, folder, "no file that is also a folder", "store.key_beside_prefix"))
    if refusals:
        raise Refused(*refusals)


def _clash(key: str, other: str, expected: str, code: str) -> Refusal:
    return Refusal(code, key, other, expected, f"{key} and {other} cannot both be kept in every store; rename one.")
