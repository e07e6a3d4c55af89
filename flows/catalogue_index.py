"""Rows of the store's index for what a catalogue run found: the publications, and verdicts that led to none."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from draftmill.licences.terms import terms_of
from draftmill.pard.names import read_name
from draftmill.store.index import Pairing, Reason, Row, reasons_of, update_index
from draftmill.store.index_rebuilding import row_at
from draftmill.store.interface import Store
from draftmill.store.pages import publish_pages
from flows.catalogue_plan import Item
from flows.catalogue_summary import RunRow
from flows.routes.route import find_route


def index_rows(store: Store, ended: Iterable[tuple[RunRow, Item]]) -> None:
    """Puts a row into index.json for each drafter with a verdict, and makes its page and index.html; one that failed
    has none, and keeps its last."""
    rows = [row for each, item in ended if (row := index_row(store, each, item))]
    if rows:
        update_index(store, rows)
        publish_pages(store, {(row.kind, row.entry) for row in rows})


def index_row(store: Store, row: RunRow, item: Item) -> Row | None:
    """Raises what reading the manifest raises."""
    if item.work is None or row.verdict == "failed":
        return None
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
        entry=item.work.order.name or row.repo,
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
