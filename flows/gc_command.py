"""`draftmill gc`: removes what is of no use in a store and in the work folder, and nothing that a manifest names."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from draftmill.cli.folder import folder
from draftmill.cli.retrieval import Store
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE
from draftmill.store.garbage import DAY_S, find_garbage, remove_garbage
from draftmill.store.opening import open_existing_store
from flows.cache_garbage import cached_jobs, remove, remove_staged, staged_long_ago, superfluous

GIB = 1 << 30


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    grace: Annotated[
        float, typer.Option(min=0, help="Days that an object without a manifest is left to its publisher.")
    ] = 1.0,
    cache_age: Annotated[float, typer.Option(min=0, help="Days that a finished job is kept unused.")] = 30.0,
    cache_size: Annotated[float | None, typer.Option(min=0, help="GiB of finished jobs to keep at most.")] = None,
    store: Store = DEFAULT_STORE,
    work: Annotated[
        Path, typer.Option(envvar="DRAFTMILL_WORK", parser=folder, metavar="FOLDER", help="The work folder.")
    ] = Path("mill-work"),
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
) -> None:
    """Remove unfinished uploads, objects no manifest names, reports without a record, and old finished jobs."""
    opened = open_existing_store(store)
    now = time.time()
    garbage = find_garbage(opened, now=now, grace_s=grace * DAY_S)
    most = None if cache_size is None else int(cache_size * GIB)
    jobs = superfluous(cached_jobs(work), now=now, age_s=cache_age * DAY_S, most_bytes=most)
    staged = staged_long_ago(work, now=now, age_s=cache_age * DAY_S)
    gone = jobs
    if not dry_run:
        garbage = replace(garbage, waste=remove_garbage(opened, garbage, now=now))
        gone = [job for job in jobs if remove(job)]
        staged = [each for each in staged if remove_staged(each)]
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "dry_run": dry_run,
                    "objects": [{"key": each.key, "size": each.size, "why": each.why} for each in garbage.waste],
                    "leavings": list(garbage.leavings),
                    "unread": list(garbage.unread),
                    "jobs": [{"folder": str(job.folder), "size": job.size} for job in gone],
                    "staged": [{"folder": str(each.folder), "size": each.size} for each in staged],
                },
                indent=1,
            )
        )
        return
    console = printer()
    for each in garbage.waste:
        console.print(f"{plain(opened.where(each.key))}  {each.size:,} bytes: {each.why}")
    for name in garbage.leavings:
        console.print(f"{plain(name)}: left by a writer that is gone")
    for name in garbage.unread:
        console.print(
            f"[yellow]kept[/] {plain(name)}: this manifest cannot be read, so that nothing beside it is touched"
        )
    for job in gone:
        console.print(f"{plain(str(job.folder))}  {job.size:,} bytes: a finished job")
    for left in staged:
        console.print(f"{plain(str(left.folder))}  {left.size:,} bytes: left by a measurement that is gone")
    verb = "would free" if dry_run else "freed"
    freed = garbage.size + sum(job.size for job in gone) + sum(each.size for each in staged)
    leavings = len(garbage.leavings) + len(staged)
    console.print(f"{verb} {freed:,} bytes: {len(garbage.waste)} objects, {len(gone)} jobs, {leavings} leavings")
