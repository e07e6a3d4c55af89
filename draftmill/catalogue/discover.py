"""What changed at an author since the catalogue was written: proposals, which a person looks at and takes over.

new        a repository with a family's name that no row has; the family is then read from its metadata
gone       a row whose repository the hub does not have
renamed    a row whose repository answers under another name, or whose commit another, new one has
re-licensed  the card names another licence than the row
licence    the card names one, and the row none
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Literal

import yaml

from draftmill.catalogue.catalogue import Catalogue
from draftmill.catalogue.schema import Drafter
from draftmill.hub.authors import Listed
from draftmill.outcome import Refused
from draftmill.pard.names import read_name

Kind = Literal["new", "gone", "renamed", "re-licensed", "licence"]


@dataclass(frozen=True)
class Proposal:
    """kind: see above; sentence: what was found; row: text for the section `drafters`, "" where none is to add.
    replaces: the name of the row that stands and that `row`, which has all its other keys, takes the place of."""

    kind: Kind
    repo: str
    sentence: str
    row: str = ""
    replaces: str = ""


Family = Callable[[str], str]
"""owner/repo -> the family that it shows. Raises Refused."""
Now = Callable[[str], str | None]
"""owner/repo -> the name under which the hub answers for it now, None when it has none."""
Commits = Callable[[str], str | None]
"""owner/repo -> the commit that the mill saw last, None when it never did."""


def propose(
    catalogue: Catalogue, author: str, listed: Iterable[Listed], *, family: Family, now: Now, seen: Commits
) -> list[Proposal]:
    """listed: all that the author has. Raises what `family` and `now` raise, Refused of `family` excepted."""
    rows = {repo for repo in catalogue.drafters if repo.partition("/")[0] == author}
    found = {each.repo: each for each in listed if each.repo in rows or catalogue.family_by_name(each.repo)}
    new = {repo: each for repo, each in found.items() if repo not in rows}
    proposals = []
    for repo in sorted(rows - found.keys()):
        moved = now(repo)
        same = [each for each in new.values() if each.commit == seen(repo)]
        if moved and moved != repo:
            proposals.append(_renamed(catalogue, repo, moved, "the hub answers for it under the new name"))
            new.pop(moved, None)
        elif same:
            proposals.append(_renamed(catalogue, repo, same[0].repo, f"both are commit {same[0].commit[:12]}"))
            new.pop(same[0].repo)
        elif moved is None:
            proposals.append(Proposal("gone", repo, "the hub does not have it, or not for this token"))
    proposals += [_new(each, family) for each in new.values()]
    for repo in sorted(rows & found.keys()):
        proposals += _licence(catalogue, found[repo])
    return sorted(proposals, key=lambda proposal: (proposal.kind, proposal.repo))


def _renamed(catalogue: Catalogue, repo: str, name: str, why: str) -> Proposal:
    row = _row(name, catalogue.drafter(repo), catalogue.path)
    return Proposal("renamed", repo, f"now {name}: {why}", row, replaces=repo)


def _new(listed: Listed, family: Family) -> Proposal:
    try:
        shown = family(listed.repo)
    except Refused as refused:
        return Proposal("new", listed.repo, refused.refusals[0].sentence)
    name = read_name(listed.repo)
    size = f"; by its name the {name.size_of} has {name.size}" if name else ""
    gated = f"; gated ({listed.gated})" if listed.gated else ""
    return Proposal(
        "new",
        listed.repo,
        f"{shown}, commit {listed.commit[:12]}{size}{gated}",
        _row(listed.repo, Drafter(family=shown, licence=listed.licence)),
    )


def _licence(catalogue: Catalogue, listed: Listed) -> list[Proposal]:
    drafter = catalogue.drafter(listed.repo)
    if (listed.licence or "").lower() == (drafter.licence or "").lower():
        return []
    row = _row(listed.repo, drafter.model_copy(update={"licence": listed.licence}), catalogue.path)
    if not drafter.licence:
        return [Proposal("licence", listed.repo, f"its card says {listed.licence}", row, replaces=listed.repo)]
    sentence = f"its card says {listed.licence or 'nothing'}, the catalogue {drafter.licence}"
    return [Proposal("re-licensed", listed.repo, sentence, row, replaces=listed.repo)]


def _row(repo: str, drafter: Drafter, catalogue: Path | None = None) -> str:
    """All that is known of it; files are named from the catalogue's folder, as its author does."""
    known = drafter.model_dump(mode="json", exclude_defaults=True)
    if catalogue and drafter.licence_files:
        known["licence_files"] = [_from(file, catalogue.absolute().parent) for file in drafter.licence_files]
    text = yaml.safe_dump({repo: known}, sort_keys=False, allow_unicode=True, width=100)
    return indent(text.rstrip("\n"), "  ")


def _from(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder) if file.is_relative_to(folder) else file)
