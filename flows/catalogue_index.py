"""Rows of the store's index for what a catalogue run found: the publications, and verdicts that led to none."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, get_args

from draftmill.catalogue.catalogue import Catalogue
from draftmill.catalogue.schema import REFUSE
from draftmill.licences.terms import terms_of
from draftmill.pard.names import read_name
from draftmill.store.index import Pairing, Reason, Row, read_index, reasons_of, update_index
from draftmill.store.index_row import row_at
from draftmill.store.interface import Store
from draftmill.store.manifest import Kind
from draftmill.store.pages import Drafter, publish_pages
from flows.catalogue_plan import GONE, Item
from flows.catalogue_summary import RunRow
from flows.routes.route import find_route


def index_rows(store: Store, ended: Iterable[tuple[RunRow, Item]], catalogue: Catalogue) -> None:
    """Puts a row into index.json for each drafter with a verdict, and makes its page and index.html; one that failed
    has none, and keeps its last. Verdicts go that these contradict: of a drafter under its own name, where it has
    another one now, and that it was gone, where it is not."""
    rows = {each.repo: row for each, item in ended if (row := index_row(store, each, item, catalogue))}
    if not rows:
        return
    named = {row.entry for row in rows.values()}
    renamed = {repo for repo, row in rows.items() if row.entry != repo} - named
    renamed -= {drafter.publish_as for drafter in catalogue.drafters.values()}  # where it is another one's name
    update_index(
        store, rows.values(), is_overtaken=lambda old: old.entry in renamed or (_is_gone(old) and old.entry in named)
    )
    own: set[Drafter] = {(kind, repo) for repo in renamed for kind in get_args(Kind)}
    publish_pages(store, {(row.kind, row.entry) for row in rows.values()} | own)


def index_returned(store: Store, repos: Iterable[str], catalogue: Catalogue) -> None:
    """Of drafters that were gone, and are there again as they were: nothing of them runs, and what was known holds."""
    stored = read_index(store)
    names = {_name(repo, catalogue) for repo in repos}
    rows = [row for row in (stored.index.rows if stored else ()) if _is_gone(row) and row.entry in names]
    if rows:
        update_index(store, (), is_overtaken=lambda old: _is_gone(old) and old.entry in names)
        publish_pages(store, {(row.kind, row.entry) for row in rows})


def _is_gone(row: Row) -> bool:
    return row.manifest is None and row.reason is not None and row.reason.code == GONE


def _name(repo: str, catalogue: Catalogue) -> str:
    return catalogue.drafter(repo).publish_as or repo


def index_row(store: Store, row: RunRow, item: Item, catalogue: Catalogue) -> Row | None:
    """Raises what reading the manifest raises."""
    if row.verdict == "failed":
        return None
    if item.work is None:
        return _unseen(row, item, catalogue)
    fitting = [pair["target"] for pair in row.pairs if pair["verdict"] != "refused"]
    drafter = item.work.subject.drafter
    targets = tuple(dict.fromkeys([*drafter.trained_for, *fitting]))
    if row.manifest:
        published = row_at(store, row.manifest)
        known = {"targets": tuple(dict.fromkeys([*targets, *published.targets])), "pairs": _pairs(row)}
        return published.model_copy(update=known)
    name = read_name(row.repo)
    terms = terms_of(item.work.listing.licence)
    return Row(
        kind=find_route(item.route).kind,
        entry=_name(row.repo, catalogue),
        family=item.family,
        size=name.size if name and name.size_of == "draft" else None,
        route=item.route,
        verdict=row.verdict,
        reason=_reason(row),
        **(reasons_of(row.refusals) if row.verdict != "pass" else {}),
        targets=targets,
        licence=terms.id if terms else item.work.listing.licence,
        manifest=None,
        commit=item.commit,
        recipe=row.recipe,
        created=datetime.now(UTC),
    )


def _unseen(row: RunRow, item: Item, catalogue: Catalogue) -> Row:
    """Of a drafter that is gone, or shows no family: kind and route are those that the catalogue expects, or a model's
    that has none."""
    drafter = catalogue.drafter(row.repo)
    expected = drafter.family or catalogue.family_by_name(row.repo)
    family = catalogue.families.get(expected) if expected else None
    return Row(
        kind=find_route(family.route).kind if family else "model",
        entry=_name(row.repo, catalogue),
        family=expected if row.code == GONE else None,
        route=family.route if family else REFUSE,
        verdict="refused",
        reason=_reason(row),
        **reasons_of(row.refusals),
        targets=drafter.trained_for,
        licence=drafter.licence,
        manifest=None,
        commit=item.commit or None,
        recipe=None,
        created=datetime.now(UTC),
    )


def _pairs(row: RunRow) -> tuple[Pairing, ...]:
    judged = [
        Pairing(
            target=pair["target"],
            verdict=pair["verdict"],
            off_pair=pair["off_pair"],
            why=next((refusal["sentence"] for refusal in pair["refusals"]), "; ".join(pair["remarks"]) or None),
        )
        for pair in row.pairs
    ]
    return (*judged, *(Pairing(target=name, verdict="not judged", why=why) for name, why in row.not_judged.items()))


def _reason(row: RunRow) -> Reason | None:
    first: dict[str, Any] = dict(row.refusals[0]) if row.refusals else {}
    if row.verdict == "pass":
        return None
    return Reason(
        code=row.code or "catalogue.no_verdict",
        sentence=first.get("sentence") or row.sentence,
        where=first.get("where"),
        measured=first.get("measured"),
        expected=first.get("expected"),
        source=first.get("source"),
        would_change=first.get("would_change"),
    )
