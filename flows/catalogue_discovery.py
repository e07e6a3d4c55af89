"""`draftmill catalogue discover`: the hub's lists held against the catalogue, with what earlier runs saw."""

from collections.abc import Sequence
from pathlib import Path

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.classify import classify
from draftmill.catalogue.discover import Proposal, propose
from draftmill.catalogue.evidence import look
from draftmill.catalogue.standing import read_standings
from draftmill.hub.authors import list_author
from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.outcome import NotPermitted, Refused
from draftmill.store.opening import open_store
from flows.secrets import secret_files
from flows.sources import source_of

MISSING = ("hub.repo_missing", "hub.revision_missing")


def discover(path: Path, authors: Sequence[str] | None, *, hub: str, store: str) -> list[Proposal]:
    """authors: None for all in the catalogue. Reads the hub and the store. Raises what those raise."""
    catalogue = load_catalogue(path)
    standings = read_standings(open_store(store))
    with secret_files() as secrets:
        source = source_of(hub, secrets)

        def family(repo: str) -> str:
            return classify(look(Ref(repo), source)[1], catalogue.families).family

        def now(repo: str) -> str | None:
            try:
                return resolve(Ref(repo), source, "tokenizer").repo
            except Refused as refused:
                # What has no file of a tokenizer is there all the same.
                return None if refused.code in MISSING else repo
            except NotPermitted:
                return None

        def seen(repo: str) -> str | None:
            standing = standings.get(repo)
            return standing.seen if standing else None

        return [
            proposal
            for author in authors or catalogue.authors
            for proposal in propose(catalogue, author, list_author(author, source), family=family, now=now, seen=seen)
        ]
