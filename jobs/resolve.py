"""Job `resolve`: a reference to a pinned listing.

Parameters: ref ("owner/repo[@revision]"; not used with the slot `folder`), files ("model" or "tokenizer"), and one
source: endpoint (address of a hub), mirror (folder or file:/// address), or the input slot `mirror` or `folder`.
Secret: hf_token, used only with an endpoint. Fact: listing.
"""

from importlib.metadata import version

from draftmill.hub.listing import selection_of
from draftmill.hub.ref import Ref, parse_ref
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Folder, Hub, Source, choose_source
from draftmill.outcome import BadConfiguration
from jobs.contract import Job, main

KNOWN = {"ref", "files", "endpoint", "mirror"}


def source_of(job: Job) -> Source:
    """The one source that parameters and input slots name. Raises BadConfiguration."""
    slots = job.request.inputs
    mirror = job.parameters.get("mirror") or slots.get("mirror")
    endpoint = job.parameters.get("endpoint")
    if job.parameters.get("mirror") and slots.get("mirror"):
        raise BadConfiguration("The mirror is named twice: as a parameter and as a slot.", code="hub.source")
    source = choose_source(endpoint=endpoint, mirror=mirror, folder=slots.get("folder"), token=job.secret("hf_token"))
    if isinstance(source, Hub):
        job.tool("huggingface_hub", version("huggingface_hub"))
    return source


def check_parameters(job: Job, known: set[str]) -> None:
    if unknown := sorted(job.parameters.keys() - known):
        raise BadConfiguration(f"Unknown parameters: {', '.join(unknown)}.", code="hub.parameters")


def work(job: Job) -> None:
    check_parameters(job, KNOWN)
    files = selection_of(job.parameters.get("files"))
    source = source_of(job)
    ref = Ref(folder=source.root) if isinstance(source, Folder) else parse_ref(str(job.parameters.get("ref", "")))
    listing = resolve(ref, source, files)
    job.fact("listing", listing.as_json())
    job.log(f"{ref} is {listing.commit}: {len(listing.files)} files, {listing.size:,} bytes")


if __name__ == "__main__":
    main("resolve", work)
