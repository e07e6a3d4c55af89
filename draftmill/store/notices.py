"""The text that travels with pulled files: whose work they are, under which licence, and what was changed."""

from collections.abc import Iterator

from draftmill.licences.lineage import Ancestor
from draftmill.store.manifest import Manifest, Obligation, Source

NAME = "draftmill-notices.txt"


def notices_of(manifest: Manifest) -> str:
    """Plain text; the same for the same manifest."""
    return "\n".join(_lines(manifest)) + "\n"


def _lines(manifest: Manifest) -> Iterator[str]:
    licence = manifest.licence
    yield f"{manifest.entry}, as published at {manifest.folder}"
    yield ""
    yield f"Licence: {licence.id or 'none named by the source'}" + (f" (text: {licence.text})" if licence.text else "")
    if licence.statement:
        yield f"Published by this right, in the publisher's words: {licence.statement}"
    yield from (f"Terms that bind: {obligation_line(obligation)}" for obligation in manifest.obligations)
    files = [file.path for file in manifest.files if file.role == "licence"]
    if files:
        yield f"Files of the licence, beside this one: {', '.join(files)}"
    yield from manifest.notices
    yield ""
    yield f"Made from {_source(manifest.source)}"
    if manifest.donor:
        yield f"Tokenizer from {_source(manifest.donor.source)}"
    yield from (f"Comes from {ancestor_line(ancestor)}" for ancestor in manifest.lineage)
    changed = any(file.role == "model" for file in manifest.files)
    if changed:
        yield "The weights were changed: converted to GGUF and, where a name says so, quantized, with"
        yield from (f"  {tool.name} {tool.version}" for tool in manifest.tools)
    yield from _listed("What it can do", manifest.can)
    yield from _listed("What it cannot do", manifest.cannot)


def obligation_line(obligation: Obligation) -> str:
    """A licence that travels along, because of whom, and where what it asks for is."""
    because = [name if name != "itself" else "the source" for name in obligation.because_of]
    where = [path for path in (obligation.agreement, obligation.notice) if path]
    return f"{obligation.licence} (of {', '.join(because)})" + (f": see {', '.join(where)}" if where else "")


def ancestor_line(ancestor: Ancestor) -> str:
    """Its relation, its licence, and who says so."""
    licence = f"licence {ancestor.licence}, by {ancestor.known_from}" if ancestor.licence else "licence not known"
    return f"{ancestor.name} ({ancestor.relation}, as {ancestor.said_by} says; {licence})"


def _source(source: Source) -> str:
    named = f"{source.repo or 'a folder'} at {source.commit}"
    named += f", licence {source.licence}" if source.licence else ", which names no licence"
    return named + (f", derived from {', '.join(source.base_models)}" if source.base_models else "")


def _listed(title: str, sentences: tuple[str, ...]) -> Iterator[str]:
    if sentences:
        yield ""
        yield f"{title}:"
        yield from (f"  {sentence}" for sentence in sentences)
