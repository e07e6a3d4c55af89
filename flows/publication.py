"""From finished jobs to a manifest and the files it commits."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from draftmill.outcome import Refusal, Refused
from draftmill.pard.capabilities import WARP_FILE
from draftmill.store.manifest import Donor, File, Manifest, Role, Source, Tool
from flows.chain import Done
from flows.licences import Terms
from flows.order import Order

Listing = dict[str, Any]
LISTING_TO_SOURCE = {"source": "origin"}
NOT_PINNED = ("gated", "not_taken")
ENTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


def source_of(listing: Listing, downloaded: Done, hub: str) -> Source:
    """A listing as the manifest keeps it, with the sha256 of every file: the hub states it for large ones only."""
    sha256 = {output.path: output.sha256 for output in downloaded.finished.result.outputs}
    fields = {LISTING_TO_SOURCE.get(k, k): v for k, v in listing.items() if k not in NOT_PINNED}
    fields["files"] = [{**file, "sha256": sha256[file["path"]]} for file in listing["files"]]
    return Source.model_validate(fields | {"hub": hub.rstrip("/") if listing["source"] == "hub" else None})


def entry_name(order: Order, listing: Listing) -> str:
    """owner/name of the publication: the source's, the order's, or local/<folder>. Raises Refused when it is none."""
    name = order.name or listing["repo"] or f"local/{Path(order.ref).resolve().name}"
    if not ENTRY.fullmatch(name):
        raise Refused(
            Refusal(
                "publish.name",
                order.ref,
                name,
                "owner/name of letters, digits, dots, dashes and underscores",
                "It cannot be published under this name; give another with --name OWNER/NAME.",
            )
        )
    return name


@dataclass(frozen=True)
class Publication:
    manifest: Manifest
    files: dict[str, Path]


def assemble(
    *,
    order: Order,
    listing: Listing,
    donor: Listing | None,
    donor_files: Done | None,
    recipe: str,
    parameters: dict[str, Any],
    terms: Terms,
    model: Done,
    tokenizer: Done,
    products: Sequence[Done],
    checks: Sequence[Done],
    jobs: Iterable[Done],
) -> Publication:
    """Everything the manifest promises, with the local file behind each path."""
    jobs = list(jobs)
    files: dict[str, Path] = {}
    listed: list[File] = []

    def take(done: Done, path: str, role: Role, name: str | None = None) -> None:
        output = next(o for o in done.finished.result.outputs if o.path == path)
        files[name or path] = done.finished.out / path
        listed.append(File(path=name or path, size=output.size, sha256=output.sha256, role=role))

    for product in products:
        for output in product.finished.result.outputs:
            take(product, output.path, "model")
    downloaded = {o.path: o for o in model.finished.result.outputs}
    if WARP_FILE in downloaded:
        take(model, WARP_FILE, "sidecar")
    for output in tokenizer.finished.result.outputs:
        take(tokenizer, output.path, "evidence" if output.path == "proof.json" else "tokenizer")
    for product, check in zip(products, checks, strict=True):
        stem = product.finished.result.outputs[0].path.removesuffix(".gguf")
        take(check, "check.json", "evidence", f"{stem}.check.json")
    for name, path in terms.files.items():
        if name in downloaded:
            take(model, name, "licence")
        else:
            from draftmill.store.publish import describe

            files[name] = path
            listed.append(describe(path, name, "licence"))
    proof = tokenizer.facts["proof"]
    proof_sha256 = next(o.sha256 for o in tokenizer.finished.result.outputs if o.path == "proof.json")
    can, cannot = _statement(proof["drafter"])
    manifest = Manifest(
        kind="model",
        entry=entry_name(order, listing),
        recipe=recipe,
        source=source_of(listing, model, order.hub),
        donor=Donor(source=source_of(donor, donor_files, order.hub), proof=proof_sha256)
        if donor and donor_files
        else None,
        files=tuple(listed),
        tools=tools_of(jobs),
        parameters=parameters,
        job_keys={done.title: done.key for done in jobs if done.key},
        job_results=results_of(jobs),
        licence=terms.licence,
        lineage=terms.lineage,
        obligations=terms.obligations,
        notices=terms.notices,
        can=can,
        cannot=cannot,
        created=datetime.now(UTC),
    )
    return Publication(manifest, files)


def results_of(jobs: Iterable[Done]) -> dict[str, str]:
    """Title -> sha256 of what the job said."""
    return {done.title: done.finished.sha256 for done in jobs}


def tools_of(jobs: Iterable[Done]) -> tuple[Tool, ...]:
    """Every tool that worked, once."""
    found = {
        (tool.name, tool.version, tool.digest): Tool(name=tool.name, version=tool.version, digest=tool.digest)
        for done in jobs
        for tool in done.finished.result.tools
    }
    return tuple(found[key] for key in sorted(found, key=str))


def _statement(drafter: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the artifact can do as it is, and what it cannot do without something named."""
    modes = drafter["modes"]
    can = tuple(mode["sentence"] for mode in modes.values() if mode["works"] == "as is")
    cannot = tuple(mode["sentence"] for mode in modes.values() if mode["works"] != "as is")
    return can, cannot
