"""A draft of any form, opened for conversion: its config, and its tensors read by ranges of rows."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config import DraftConfig
from draftmill.dflash.conversion.form import Form, recognise
from draftmill.dflash.inventory import Expected, Variant, expected_tensors
from draftmill.dflash.package import MANIFEST, Package
from draftmill.dflash.storage import Located
from draftmill.gguf.checkpoint import weight_files
from draftmill.intake.weights import INDEX
from draftmill.q4nx.conversion import q4_k_to_q4_1
from draftmill.q4nx.encodings import CHUNK_BYTES, Encoding, Kind
from draftmill.q4nx.matrix import decode
from draftmill.q4nx.tiles import ROWS

if TYPE_CHECKING:
    from draftmill.dflash.gguf_form.draft import GgufDraft, GgufRows

PLAIN = ("BF16", "F16", "F32")
"""Labels of tensors without codes."""
_LABELS = {Kind.BLOCK_BF16: "BF16"}


@dataclass(frozen=True)
class SourceTensor:
    """label: BF16, F16 or F32, or the codes that it is stored in (Q4_1, Q4_K, Q8_0).

    read(first, last): rows as float32, as the form's own arithmetic gives them. codes(encoding): the bytes of Q4NX
    chunks that hold the source's codes, None where it has none of that kind. release(): gives the memory back that
    reading took, until the next.
    """

    expected: Expected
    label: str
    read: Callable[[int, int], np.ndarray]
    codes: Callable[[Encoding], np.ndarray | None] = lambda encoding: None
    release: Callable[[], object] = lambda: None

    @property
    def name(self) -> str:
        return self.expected.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.expected.shape

    @property
    def coded(self) -> bool:
        return self.label not in PLAIN

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(self.shape[0])
        return self.read(first, last)

    def chunks(self, encoding: Encoding) -> np.ndarray | None:
        """As `codes`: what a writer of packages asks for."""
        return self.codes(encoding)


@dataclass(frozen=True)
class DraftSource:
    """opened: the form's own reader. files: those that the draft is read from. variants: spellings and encodings that
    were met."""

    path: Path
    form: Form
    opened: "Checkpoint | Package | GgufDraft"
    config: DraftConfig
    tensors: Mapping[str, SourceTensor]
    files: tuple[Path, ...]
    variants: tuple[Variant, ...]


@contextmanager
def open_source(path: Path, *, causal: bool | None = None) -> Iterator[DraftSource]:
    """causal: what the caller knows about sliding layers, for configs that do not state it.

    Raises Refused (`recognise`, and the opening of each form), OSError.
    """
    form = recognise(path)
    if form == Form.HF:
        with Checkpoint.open(path, causal=causal) as checkpoint:
            yield _of_checkpoint(path, checkpoint)
    elif form == Form.Q4NX:
        with Package.open(path, causal=causal) as package:
            yield _of_package(path, package)
    else:
        with open_gguf(path, causal=causal) as source:
            yield source


@contextmanager
def open_gguf(path: Path, *, causal: bool | None = None) -> Iterator[DraftSource]:
    """A GGUF file. Raises Refused (`GgufDraft.open`), OSError."""
    from draftmill.dflash.gguf_form.draft import GgufDraft

    with GgufDraft.open(path, causal=causal) as draft:
        yield _of_gguf(path, draft)


def _of_checkpoint(path: Path, checkpoint: Checkpoint) -> DraftSource:
    tensors = {}
    for expected in expected_tensors(checkpoint.config, scalars=False):
        stored = checkpoint.tensors[expected.name]
        read = partial(lambda stored, first, last: stored[first:last], stored)
        tensors[expected.name] = SourceTensor(expected, stored.kind, read)
    files = (path / "config.json", *(p for p in [path / INDEX] if p.is_file()), *weight_files(path))
    return DraftSource(path, Form.HF, checkpoint, checkpoint.config, tensors, files, checkpoint.variants)


def _of_package(path: Path, package: Package) -> DraftSource:
    tensors = {}
    for expected in expected_tensors(package.config, scalars=False):
        located = package.inventory.by_name[expected.name]
        kind = located.encoding.kind if located.encoding else Kind(located.entry.dtype.lower())
        label = _LABELS.get(kind, kind.value.upper())
        read = partial(_package_rows, package, located)
        tensors[expected.name] = SourceTensor(
            expected,
            label,
            read,
            partial(_package_chunks, package, located),
            partial(package.container.release, located.entry.name),
        )
    files = (path / "config.json", package.container.path, *(p for p in [path / MANIFEST] if p.is_file()))
    return DraftSource(path, Form.Q4NX, package, package.config, tensors, files, package.inventory.variants)


def _of_gguf(path: Path, draft: "GgufDraft") -> DraftSource:
    tensors = {}
    for expected in expected_tensors(draft.config, scalars=False):
        rows = draft.tensors[expected.name]
        read = partial(lambda rows, first, last: rows[first:last], rows)
        tensors[expected.name] = SourceTensor(expected, rows.type.name, read, partial(_gguf_chunks, rows))
    return DraftSource(path, Form.GGUF, draft, draft.config, tensors, (path,), draft.variants)


def _gguf_chunks(rows: "GgufRows", encoding: Encoding) -> np.ndarray | None:
    from draftmill.q4nx.from_gguf import SOURCES, gguf_to_q4nx

    if encoding.kind not in SOURCES.get(rows.type, ()):
        return None
    return gguf_to_q4nx(rows.type, rows.stored, encoding)[0]


def _package_rows(package: Package, located: Located, first: int, last: int) -> np.ndarray:
    data = package.container.bytes(located.entry.name)
    encoding = located.encoding
    if encoding is None:
        return located.decode(data)[first:last]
    begin, end = first // ROWS * ROWS, min(encoding.rows, -(-last // ROWS) * ROWS)
    row = encoding.nbytes // encoding.rows
    part = decode(replace(encoding, rows=end - begin), data[begin * row : end * row])
    return part[first - begin : last - begin]


def _package_chunks(package: Package, located: Located, encoding: Encoding) -> np.ndarray | None:
    own = located.encoding
    if own is None or not own.packed:
        return None
    data = package.container.bytes(located.entry.name)
    if own.kind == encoding.kind:
        return data
    if own.kind == Kind.Q4_K and encoding.kind == Kind.Q4_1:
        return q4_k_to_q4_1(data.reshape(-1, CHUNK_BYTES[own.kind])).reshape(-1)
    return None
