"""A report that was just published gets into the rows of the drafters whose files ran in it."""

from draftmill.store.index import read_index, update_index
from draftmill.store.index_report import measurement_at
from draftmill.store.interface import Store
from draftmill.store.pages import publish_pages


def index_measurement(store: Store, key: str) -> int:
    """key: of a report.json. Adds it to every row that has its draft's sha256, and makes their pages again.

    Returns how many rows those are: none for a file that was never published here. Raises what reading the report and
    changing the index raise.
    """
    measurement = measurement_at(store, key)
    stored = read_index(store)
    rows = [
        row.model_copy(
            update={
                "measurements": (measurement,),
                "targets": tuple(dict.fromkeys((*row.targets, measurement.target_name))),
            }
        )
        for row in (stored.index.rows if stored else ())
        if any(quant.sha256 == measurement.draft for quant in row.quants)
    ]
    if rows:
        update_index(store, rows)
        publish_pages(store, {(row.kind, row.entry) for row in rows})
    return len(rows)
