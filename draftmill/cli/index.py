"""`draftmill store index`: makes index.json and the pages again from what is in the store."""

from typing import Annotated

import typer

from draftmill.cli.bar import progress_bar
from draftmill.cli.ending import REFUSED_OR_FAILED, ending, print_json
from draftmill.cli.retrieval import (
    AsJson,
    Credentials,
    Store,
    open_catalogue,
    remark,
)
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE


def index(
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Keep nothing of the index that is there, also when it cannot be read.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the index and its pages again from manifests and reports, and put them into the store.

    Ends with 1 when something could not be read; the rest is in the index then.
    """
    from draftmill.store.index_rebuilding import rebuild_index
    from draftmill.store.pages import PAGE, publish_pages

    with ending(as_json):
        found = open_catalogue(store, credentials_file).store
        with progress_bar(count_bytes=False) as progress:
            built = rebuild_index(found, progress, anew=anew)
            publish_pages(found, progress=progress)
        rows, entries = len(built.index.rows), len(built.index.newest())
        if as_json:
            print_json({"rows": rows, "entries": entries, "problems": list(built.problems)})
        else:
            remark(built.problems)
            printer().print(
                f"{plain(found.where('index.json'))}: {rows} rows of {entries} drafters, "
                f"for people {plain(found.where(PAGE))}"
            )
        raise typer.Exit(REFUSED_OR_FAILED if built.problems else 0)
