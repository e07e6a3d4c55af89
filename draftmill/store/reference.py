"""REF: how people name a publication, and which one they mean.

owner/repo                  the newest publication of this entry
owner/repo@VERSION          VERSION begins the commit, the recipe digest, or commit12-recipe8 (4 characters at least)
repo, repo@VERSION          where only one owner has such a repository
models/owner/repo[@...]     in doubt between a model and a package; packages/... likewise
models/owner/repo/VERSION   the folder itself, as the store lists it
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from draftmill.outcome import Refusal, Refused
from draftmill.store.manifest import TOP, Kind

_KINDS: dict[str, Kind] = {TOP["model"]: "model", TOP["package"]: "package"}
_FORM = re.compile(
    rf"(?:(?P<top>{'|'.join(TOP.values())})/)?(?:(?P<owner>[^/@\s]+)/)?(?P<repo>[^/@\s]+)(?:[@/](?P<version>[^/@\s]+))?"
)
_VERSION = re.compile(r"[0-9a-f]{4,64}(-[0-9a-f]{1,8})?")
NEAR = 5


@dataclass(frozen=True)
class Place:
    """A publication as its folder's name tells it: kind, "owner/repo", and commit12-recipe8."""

    kind: Kind
    entry: str
    version: str

    @property
    def folder(self) -> str:
        return f"{TOP[self.kind]}/{self.entry}/{self.version}"

    def __str__(self) -> str:
        return f"{self.entry}@{self.version}"


def place_of(key: str) -> Place | None:
    """The place of a manifest's key, or None for the key of anything else."""
    top, *rest = key.split("/")
    if top not in _KINDS or len(rest) != 4 or rest[3] != "manifest.json":
        return None
    return Place(_KINDS[top], f"{rest[0]}/{rest[1]}", rest[2])


@dataclass(frozen=True)
class Reference:
    """A REF that was read. `owner`, `kind` and `version` are None where it does not say."""

    text: str
    kind: Kind | None
    owner: str | None
    repo: str
    version: str | None

    @property
    def entry(self) -> str | None:
        return f"{self.owner}/{self.repo}" if self.owner else None

    def fits(self, kind: str, entry: str, commit: str, recipe: str) -> bool:
        """Whether it may mean this publication; of commit and recipe the short forms do."""
        if (self.kind or kind) != kind or (entry if self.owner else entry.rpartition("/")[2]) != (
            self.entry or self.repo
        ):
            return False
        if self.version is None:
            return True
        first, dash, second = self.version.partition("-")
        if dash:
            return commit.startswith(first[:12]) and recipe.startswith(second)
        # A full digest was given and only its beginning is known here, or the other way round.
        return any(_agree(first, digest) for digest in (commit, recipe) if digest)


def read_reference(text: str) -> Reference:
    """Raises Refused("reference.form")."""
    match = _FORM.fullmatch(text.strip())
    if match is None or (match["version"] and not _VERSION.fullmatch(match["version"])):
        raise Refused(
            Refusal(
                "reference.form",
                "REF",
                text,
                "owner/repo or owner/repo@VERSION",
                "Name a drafter as owner/repo, or one publication of it as owner/repo@ and the first 4 or more "
                "characters of its commit or recipe; `draftmill list` shows what there is.",
            )
        )
    return Reference(text, _KINDS.get(match["top"] or ""), match["owner"], match["repo"], match["version"])


def unknown(reference: Reference, entries: Iterable[str], where: str) -> Refused:
    """Nothing fits: a sentence with the names that come near."""
    entries = sorted(set(entries))
    near = _near(reference, entries)
    if near:
        hint = f"There is no such drafter; near it are {', '.join(near)}."
    elif entries:
        hint = f"There is no such drafter among the {len(entries)} of this store; `draftmill list` shows them."
    else:
        hint = "The store is empty; is --store (or DRAFTMILL_STORE) the one you mean?"
    return Refused(Refusal("reference.unknown", where, reference.text, near, hint))


def no_version(reference: Reference, versions: Iterable[str], where: str) -> Refused:
    versions = list(versions)
    return Refused(
        Refusal(
            "reference.no_version",
            where,
            reference.text,
            versions,
            f"There is no such publication of {versions[0].partition('@')[0]}; there are {', '.join(versions)}.",
        )
    )


def ambiguous(reference: Reference, choices: Iterable[str], where: str) -> Refused:
    choices = sorted(set(choices))
    return Refused(
        Refusal(
            "reference.ambiguous",
            where,
            reference.text,
            choices,
            f"It may be {' or '.join(choices)}; name one of them.",
        )
    )


def _near(reference: Reference, entries: list[str]) -> list[str]:
    wanted = (reference.entry or reference.repo).casefold()
    by_name: dict[str, str] = {}
    for entry in entries:
        name = entry if reference.owner else entry.rpartition("/")[2]
        by_name.setdefault(name.casefold(), entry)
        by_name.setdefault(entry.casefold(), entry)
    inside = [entry for name, entry in by_name.items() if reference.repo.casefold() in name]
    close = [by_name[name] for name in get_close_matches(wanted, by_name, NEAR, 0.6)]
    return list(dict.fromkeys([*close, *inside]))[:NEAR]


def _agree(one: str, other: str) -> bool:
    length = min(len(one), len(other))
    return one[:length] == other[:length]
