"""The native converter: a dense safetensors checkpoint and a tokenizer -> GGUF, without torch, in bounded memory.

It writes what llama.cpp's converter writes: the same tensors byte for byte in the same order, and the same keys but
for those that name the origin. Header and tensor list go through gguf.GGUFWriter; the tensors' bytes are cast in
pieces by a few threads, each from its place in the source to its place in the output.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import draftmill
from draftmill.gguf.checkpoint import read_checkpoint
from draftmill.gguf.half_precision import BYTES, all_finite, cast, stored
from draftmill.gguf.hyperparameters import add_hyperparameters, read_hyperparameters
from draftmill.gguf.merged_folder import merged_folder
from draftmill.gguf.metadata import Provenance, add_own_keys, describe, own_keys
from draftmill.gguf.tensor_names import PlannedTensor, plan_tensors
from draftmill.gguf.vocabulary_keys import add_vocabulary
from draftmill.intake.bounded_json import read_object
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file

if TYPE_CHECKING:
    from gguf import GGUFWriter

OUTTYPES = ("f16", "bf16", "f32")
CONFIG_LIMIT = 16 << 20
PIECE = 1 << 16
"""Elements cast at a time by one thread: a few hundred kilobytes, which stay in cache and on the heap."""


@dataclass(frozen=True)
class Conversion:
    """What was written. tensors: their number; weights: their elements; size: of the file, in bytes."""

    converter: str
    tensors: int
    weights: int
    size: int


@dataclass(frozen=True)
class _Piece:
    """Rows first..last of a tensor; offset: of the piece in the output, absolute."""

    tensor: PlannedTensor
    first: int
    rows: int
    offset: int


def convert_native(
    model: Path,
    tokenizer: Path,
    out: Path,
    *,
    outtype: str,
    provenance: Provenance,
    progress: Progress = silent,
    threads: int | None = None,
) -> Conversion:
    """Writes `out` from the folders `model` (config.json, weights) and `tokenizer`. outtype: f16, bf16 or f32.

    Raises Refused with what is wrong with the model or tokenizer (codes convert.*); then `out` is not there.
    """
    from gguf import GGUFType, GGUFWriter, LlamaFileType

    kind = outtype.upper()
    file_type = {"F16": LlamaFileType.MOSTLY_F16, "BF16": LlamaFileType.MOSTLY_BF16, "F32": LlamaFileType.ALL_F32}[kind]
    config = read_object(model / "config.json", "config.json", CONFIG_LIMIT)
    hp = read_hyperparameters(config)
    planned = plan_tensors(read_checkpoint(model), hp, kind)
    weights = sum(prod(tensor.shape) for tensor in planned)

    writer = GGUFWriter(None, hp.architecture)
    _add_tensors(writer, planned)
    writer.add_type(GGUFType.MODEL)
    describe(provenance, weights, model).set_gguf_meta_model(writer)
    converter = f"native {draftmill.__version__}"
    add_own_keys(writer, own_keys(provenance, converter, config))
    add_hyperparameters(writer, hp, int(file_type))
    with merged_folder(model, tokenizer) as folder:
        add_vocabulary(writer, folder, hp.architecture, hp.vocabulary)

    with whole_file(out) as beside:
        data_offset = _write_header(writer, beside)
        size = _write_tensors(planned, beside, data_offset, progress, threads or os.cpu_count() or 1)
    return Conversion(converter, len(planned), weights, size)


def _add_tensors(writer: "GGUFWriter", planned: list[PlannedTensor]) -> None:
    from gguf import GGMLQuantizationType

    for tensor in planned:
        raw_type = GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), _nbytes(tensor), raw_type)


def _write_header(writer: "GGUFWriter", path: Path) -> int:
    """Writes all but the tensors' bytes; returns where those begin."""
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return _padded(path.stat().st_size)


def _write_tensors(planned: list[PlannedTensor], path: Path, offset: int, progress: Progress, threads: int) -> int:
    """Writes the tensors' bytes from `offset` on and syncs the file; returns its size."""
    places = []
    end = offset
    for tensor in planned:
        places.append((tensor, end))
        end += _padded(_nbytes(tensor))
    sources = {tensor.source.file for tensor in planned if tensor.source}
    total = sum(_nbytes(tensor) for tensor in planned)
    with path.open("r+b", buffering=0) as out:
        out.truncate(end)
        files = {file: os.open(file, os.O_RDONLY) for file in sources}
        try:
            with ThreadPoolExecutor(threads) as pool:

                def write(piece: _Piece) -> int:
                    tensor = piece.tensor
                    source = files[tensor.source.file] if tensor.source else -1
                    return _write_piece(piece, source, out.fileno())

                done = 0
                for written in pool.map(write, _pieces(places)):
                    done += written
                    progress("converting", done, total)
        finally:
            for descriptor in files.values():
                os.close(descriptor)
        os.fsync(out.fileno())
    return end


def _pieces(places: list[tuple[PlannedTensor, int]]) -> Iterator[_Piece]:
    for tensor, offset in places:
        rows = tensor.shape[0]
        row = prod(tensor.shape[1:])
        unit = rows // tensor.heads if tensor.heads else 1
        step = max(1, PIECE // (row * unit)) * unit
        for first in range(0, rows, step):
            yield _Piece(tensor, first, min(step, rows - first), offset + first * row * BYTES[tensor.kind])


def _write_piece(piece: _Piece, source: int, out: int) -> int:
    tensor = piece.tensor
    row = prod(tensor.shape[1:])
    if tensor.source is None:
        assert tensor.values is not None  # noqa: S101 - a planned tensor has one or the other
        values = tensor.values[piece.first : piece.first + piece.rows]
    else:
        width = row * BYTES[tensor.source.kind]
        raw = os.pread(source, piece.rows * width, tensor.source.offset + piece.first * width)
        if len(raw) != piece.rows * width:
            raise OSError(f"{tensor.source.file.name} ends inside tensor {tensor.source.name}")
        values = cast(stored(raw, tensor.source.kind), tensor.source.kind, tensor.kind)
        if tensor.heads:
            values = _interleave_halves(values, tensor.shape[0] // tensor.heads, row)
    if not all_finite(values, tensor.kind):
        raise _not_finite(tensor)
    data = np.ascontiguousarray(values).view(np.uint8).data
    at = piece.offset
    while data:
        written = os.pwrite(out, data, at)
        data, at = data[written:], at + written
    return at - piece.offset


def _interleave_halves(values: np.ndarray, head: int, row: int) -> np.ndarray:
    """Rows of whole heads: halves (0..d/2, d/2..d) -> pairs, as llama's rotary embedding in ggml wants them."""
    return values.reshape(-1, 2, head // 2, row).swapaxes(1, 2).reshape(-1)


def _not_finite(tensor: PlannedTensor) -> Refused:
    name = tensor.source.name if tensor.source else tensor.name
    return Refused(
        Refusal(
            "convert.not_finite",
            name,
            f"a value that {tensor.kind} cannot hold",
            "finite values",
            "The tensor holds infinities, NaN, or values beyond 65504 that F16 cannot hold; "
            "convert with --base BF16; if that is refused too, the checkpoint is damaged.",
        )
    )


def _nbytes(tensor: PlannedTensor) -> int:
    return prod(tensor.shape) * BYTES[tensor.kind]


def _padded(size: int) -> int:
    from gguf import GGUF_DEFAULT_ALIGNMENT

    return -(-size // GGUF_DEFAULT_ALIGNMENT) * GGUF_DEFAULT_ALIGNMENT
