"""Gives a GGUF file other keys of origin: a new head in front of the same tensors."""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.gguf.metadata import ORIGIN, Provenance, add_own_keys, describe, own_keys
from draftmill.gguf.quantize_layout import lay_out

_CHUNK = 1 << 26
_FIRST = ("general.architecture", "general.type")


@dataclass(frozen=True)
class Stamped:
    """weights: elements of all tensors; size: of the file, in bytes."""

    weights: int
    size: int


def stamp(
    source: Path, target: Path, *, provenance: Provenance, converter: str, model: Path, config: dict[str, Any]
) -> Stamped:
    """Writes `target`: the tensors and other keys of `source`, and the keys of `provenance` instead of its own.

    The whole of `source` is read and synced to `target`. Raises Refused when `source` is not a sound GGUF.
    """
    from gguf import GGUFWriter

    header = read_header(source)
    weights = sum(prod(tensor.shape) for tensor in header.tensors.values())
    writer = GGUFWriter(None, str(header.fields["general.architecture"]))
    describe(provenance, weights, model).set_gguf_meta_model(writer)
    add_own_keys(writer, own_keys(provenance, converter, config))
    ours = {key: value for key, value in writer.kv_data[0].items() if key not in header.fields or ORIGIN.match(key)}
    kept = [key for key in header.fields if not ORIGIN.match(key)]
    first = [key for key in _FIRST if key in kept]
    order = [*first, *(key for key in ours if key not in first), *(key for key in kept if key not in first)]
    fields = {key: ours[key].value if key in ours else header.fields[key] for key in order}
    types = {key: (ours[key].type,) if key in ours else header.types[key] for key in order}
    tensors = [(tensor.name, tensor.shape, tensor.type) for tensor in header.tensors.values()]
    layout = lay_out(fields, types, tensors, header.alignment)
    with source.open("rb") as read, target.open("wb") as write:
        write.write(layout.head)
        write.flush()
        _copy(read.fileno(), write.fileno(), header)
        write.truncate(layout.size)
        os.fsync(write.fileno())
    return Stamped(weights, layout.size)


def _copy(source: int, target: int, header: GGUFHeader) -> None:
    """Copies all behind the header to the end of `target`."""
    at = header.data_offset
    os.lseek(target, 0, os.SEEK_END)
    while count := os.sendfile(target, source, at, _CHUNK):
        at += count
