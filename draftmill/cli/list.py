"""`draftmill list`: what there is, with its newest verdict."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.table import Table

from draftmill.cli.bar import progress_bar
from draftmill.cli.ending import ending, print_json
from draftmill.cli.retrieval import (
    COLOURS,
    AsJson,
    Credentials,
    Fresh,
    Store,
    open_catalogue,
    remark,
)
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE

if TYPE_CHECKING:
    from draftmill.store.catalogue import Catalogue, Listing
    from draftmill.store.index import Measurement, Row


def list_(
    family: Annotated[str | None, typer.Option(help="As in the catalogue: PARD-2, DFlash checkpoint...")] = None,
    verdict: Annotated[Literal["pass", "refused", "no verdict"] | None, typer.Option(help="Only these.")] = None,
    target: Annotated[str | None, typer.Option(help="Drafts for a target with this in its name.")] = None,
    device: Annotated[str | None, typer.Option(help="Measured on this device.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Every publication, not only the newest.")] = False,
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """List the drafters of a store: family, verdict, quants, and what was measured on which device."""
    with ending(as_json):
        catalogue = open_catalogue(store, credentials_file)
        with progress_bar(count_bytes=False) as progress:
            listing = catalogue.listing(fresh=fresh, progress=progress)
        rows = catalogue.rows(
            family=family, verdict=verdict, target=target, device=device, history=history, listing=listing
        )
        remark(_remarks(catalogue, listing, rows, fresh))
        if as_json:
            print_json(
                {
                    "store": catalogue.store.name,
                    "from_index": listing.from_index,
                    "written": listing.index.written.isoformat(),
                    "rows": [row.model_dump(mode="json") for row in rows],
                }
            )
        elif rows:
            printer().print(_table(rows))


def _remarks(catalogue: "Catalogue", listing: "Listing", rows: "tuple[Row, ...]", fresh: bool) -> list[str]:
    said = [*catalogue.problems, *listing.problems]
    if not (listing.from_index or fresh or catalogue.problems) and listing.index.rows:
        said.append("there is no index, so every manifest was read; `draftmill store index` writes one")
    if not rows:
        of = len(listing.index.newest())
        said.append(f"none of the {of} drafters here is like that" if of else "the store is empty")
    return said


def _table(rows: "tuple[Row, ...]") -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("drafter", overflow="fold")
    for name in ("family", "size", "verdict", "quants", "licence"):
        table.add_column(name, overflow="fold")
    table.add_column("measured", overflow="fold")
    for row in rows:
        colour = COLOURS[row.verdict]
        verdict = f"[{colour}]{row.verdict}[/]" + (f"\n{plain(row.reason.code)}" if row.reason else "")
        table.add_row(
            f"{plain(row.entry)}\n[dim]{plain(row.version)}[/]",
            plain(row.family or "-"),
            plain(row.size or "-"),
            verdict,
            plain(", ".join(quant.encoding for quant in row.quants) or "-"),
            plain(row.licence or "-"),
            "\n".join(plain(line) for line in newest_by_device(row.measurements)) or "-",
        )
    return table


def newest_by_device(measurements: "tuple[Measurement, ...]") -> list[str]:
    """One line a device: the newest speed measurement, or where there is none the newest of acceptance."""
    found: dict[str, Measurement] = {}
    for each in sorted(measurements, key=lambda each: (each.what == "speed", each.started)):
        found[each.device] = each
    return [f"{device}: {in_short(each)}" for device, each in found.items()]


def in_short(each: "Measurement") -> str:
    """A ratio with its interval where there is one, else the word; and the share accepted."""
    said = each.word
    if each.ratio:
        said += f" {each.ratio.value:.2f}x [{each.ratio.low:.2f}, {each.ratio.high:.2f}]"
    whole = next((one for one in each.acceptance if one.kind is None and one.offered), None)
    return said + (f", {whole.accepted / whole.offered:.0%} accepted" if whole else "")
