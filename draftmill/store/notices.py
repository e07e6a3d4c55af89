"""The text that travels with pulled files: whose work they are, under which licence, and what was changed."""

from collections.abc import Iterator

from draftmill.store.manifest import Manifest, Source

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
    files = [file.path for file in manifest.files if file.role == "licence"]
    if files:
        yield f"Files of the licence, beside this one: {', '.join(files)}"
    yield from manifest.notices
    yield ""
    yield f"Made from {_source(manifest.source)}"
    if manifest.donor:
        yield f"Tokenizer from {_source(manifest.donor.source)}"
    changed = any(file.role == "model" for file in manifest.files)
    if changed:
        yield "The weights were changed: converted to GGUF and, where a name says so, quantized, with"
        yield from (f"  {tool.name} {tool.version}" for tool in manifest.tools)
    yield from _listed("What it can do", manifest.can)
    yield from _listed("What it cannot do", manifest.cannot)


def _source(source: Source) -> str:
    named = f"{source.repo or 'a folder'} at {source.commit}"
    named += f", licence {source.licence}" if source.licence else ", which names no licence"
    return named + (f", derived from {', '.join(source.base_models)}" if source.base_models else "")


def _listed(title: str, sentences: tuple[str, ...]) -> Iterator[str]:
    if sentences:
        yield ""
        yield f"{title}:"
        yield from (f"  {sentence}" for sentence in sentences)
