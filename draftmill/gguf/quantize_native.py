"""Quantizing a GGUF file without llama-quantize, to the same bytes, in bounded memory.

Every block of values stands alone and every offset is known beforehand: threads read a piece, encode it and write it
where it belongs. No more than a piece a thread is in memory.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGML_QUANT_VERSION, GGMLQuantizationType, GGUFValueType

from draftmill.gguf.ggml_library import GgmlLibrary, load_library
from draftmill.gguf.header import GGUFHeader, GGUFTensor, read_header
from draftmill.gguf.mixes import ARCHITECTURES, FULL_TYPES, MIXES, Fallback, Matrix, Mix, choose_types, unknown_tensors
from draftmill.gguf.quantize_layout import Layout, Slot, lay_out
from draftmill.gguf.quantize_tensor import Encoder, admitted_encoder, encoder
from draftmill.host import cores
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file

PIECE = 1 << 19
"""Values that a thread works on at a time: a multiple of every block, and small enough for a core's cache."""


@dataclass(frozen=True)
class Quantized:
    """What was written. `types`: tensor -> type name; `fast`: types that were encoded by our own kernels."""

    types: dict[str, str]
    fallbacks: tuple[Fallback, ...]
    fast: tuple[str, ...] = ()


def quantize_native(
    source: Path,
    target: Path,
    mix_name: str,
    *,
    threads: int | None = None,
    fast: bool = True,
    progress: Progress = silent,
) -> Quantized:
    """Writes `target` from an F16, BF16 or F32 GGUF; the bytes are those of llama-quantize b11669.

    (Except where general.alignment is not 32: that version pads to 32 all the same, which nothing can read.)

    threads: None for one a usable core. fast: False keeps to ggml's own routines. progress counts source bytes.
    Raises Refused (all findings), BadConfiguration where ggml cannot be had, OSError. Nothing is left at `target` then.
    """
    mix = MIXES.get(mix_name)
    if mix is None:
        raise Refused(unknown_type(mix_name))
    header = read_header(source)
    if refusals := source_refusals(header, source.name):
        raise Refused(*refusals)
    library = load_library()
    layout, fallbacks = plan(header, mix)
    kinds = {slot.type for slot in layout.slots if slot.type != header.tensors[slot.name].type}
    encoders = {kind: encoder(kind, library, fast=fast) for kind in kinds}
    with (
        whole_file(target) as beside,
        source.open("rb", buffering=0) as read,
        beside.open("wb", buffering=0) as write,
    ):
        write.write(layout.head)
        write.truncate(layout.size)
        work = partial(_encode_piece, read.fileno(), write.fileno(), library, encoders)
        _run(work, list(_pieces(header, layout)), threads or cores(), progress)
    return Quantized(
        {slot.name: slot.type.name for slot in layout.slots},
        fallbacks,
        tuple(sorted(kind.name for kind in kinds if fast and admitted_encoder(kind, library))),
    )


def plan(header: GGUFHeader, mix: Mix) -> tuple[Layout, tuple[Fallback, ...]]:
    """Where everything goes: keys as they were, the two that quantizing sets at the end, tensors in stock order."""
    matrices = {name: Matrix(tensor.shape, tensor.type) for name, tensor in header.tensors.items()}
    architecture = header.fields["general.architecture"]
    choices = choose_types(mix, architecture, header.fields[f"{architecture}.block_count"], matrices)
    added = {"general.quantization_version": GGML_QUANT_VERSION, "general.file_type": int(mix.file_type)}
    fields = {key: value for key, value in header.fields.items() if key not in added} | added
    types = header.types | dict.fromkeys(added, (GGUFValueType.UINT32,))
    tensors = [(name, matrices[name].shape, choice.type) for name, choice in choices.items()]
    fallbacks = tuple(choice.fallback for choice in choices.values() if choice.fallback)
    return lay_out(fields, types, tensors, header.alignment), fallbacks


def unknown_type(name: str) -> Refusal:
    return Refusal(
        "quantize.type_unknown",
        "type",
        name,
        sorted(MIXES),
        "The native quantizer does not make this type (some need an importance matrix); choose one of those named, "
        "or use --quantizer stock.",
    )


def source_refusals(header: GGUFHeader, name: str) -> list[Refusal]:
    """Why this file cannot be quantized; all reasons, or none."""
    refusals = []
    architecture = header.fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        refusals.append(
            Refusal(
                "quantize.architecture_unknown",
                f"{name}: general.architecture",
                architecture,
                list(ARCHITECTURES),
                "The rule that gives each tensor its type is not known for this architecture; use --quantizer stock.",
            )
        )
    elif header.types.get(f"{architecture}.block_count") != (GGUFValueType.UINT32,):
        refusals.append(
            Refusal(
                "quantize.block_count",
                f"{name}: {architecture}.block_count",
                header.fields.get(f"{architecture}.block_count"),
                "a uint32",
                "The number of layers decides the types and is missing; convert the model again.",
            )
        )
    if header.fields.get("split.count", 0):
        refusals.append(
            Refusal(
                "quantize.split",
                f"{name}: split.count",
                header.fields["split.count"],
                0,
                "This is one part of a split model; merge the parts (llama-gguf-split --merge) and quantize the whole.",
            )
        )
    refusals += already_quantized(header, name)
    for unknown in unknown_tensors(header.tensors) if architecture in ARCHITECTURES else ():
        refusals.append(
            Refusal(
                "quantize.tensor_unknown",
                f"{name}: {unknown}",
                unknown,
                "a tensor of a dense Llama, Qwen2 or Qwen3 model",
                "No rule is known for this tensor's type; use --quantizer stock.",
            )
        )
    return refusals


def already_quantized(header: GGUFHeader, name: str) -> list[Refusal]:
    """One refusal a tensor that is not F32, F16 or BF16."""
    return [
        Refusal(
            "quantize.requantizing",
            f"{name}: {tensor.name}",
            tensor.type.name,
            [kind.name for kind in FULL_TYPES],
            "The tensor is quantized already, and quantizing twice loses quality; start from the F16 file.",
        )
        for tensor in header.tensors.values()
        if tensor.type not in FULL_TYPES
    ]


@dataclass(frozen=True)
class _Piece:
    """`first` and `count` are in values of the tensor."""

    tensor: GGUFTensor
    slot: Slot
    first: int
    count: int


def _pieces(header: GGUFHeader, layout: Layout) -> Iterator[_Piece]:
    for slot in layout.slots:
        tensor = header.tensors[slot.name]
        values = _bytes_to_values(tensor.type, tensor.nbytes)
        for first in range(0, values, PIECE):
            yield _Piece(tensor, slot, first, min(PIECE, values - first))


def _run(work: partial[int], pieces: list[_Piece], threads: int, progress: Progress) -> None:
    total, done = sum(piece.tensor.nbytes for piece in pieces if not piece.first), 0
    with ThreadPoolExecutor(threads) as pool:
        results = pool.map(work, pieces)
        try:
            for piece, read in zip(pieces, results, strict=True):
                done += read
                progress(piece.tensor.name, done, total)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _encode_piece(
    read: int, write: int, library: GgmlLibrary, encoders: dict[GGMLQuantizationType, Encoder], piece: _Piece
) -> int:
    """Returns the bytes read."""
    tensor, slot = piece.tensor, piece.slot
    size = _values_to_bytes(tensor.type, piece.count)
    raw = np.frombuffer(_read_exactly(read, size, tensor.offset + _values_to_bytes(tensor.type, piece.first)), np.uint8)
    values = library.to_float32(tensor.type, raw)
    if not np.isfinite(values).all():
        raise Refused(_not_finite(piece, values))
    encoded = raw
    if slot.type != tensor.type:
        encoded = encoders[slot.type](values)
        if not library.is_valid(slot.type, encoded):
            raise Refused(
                Refusal(
                    "quantize.out_of_range",
                    tensor.name,
                    float(np.abs(values).max()),
                    f"magnitudes that {slot.type.name} can hold",
                    "Values are too large for this type's float16 scales; choose BF16, or mend the checkpoint.",
                )
            )
    _write_fully(write, encoded.data, slot.offset + _values_to_bytes(slot.type, piece.first))
    return size


def _not_finite(piece: _Piece, values: np.ndarray) -> Refusal:
    at = int(np.flatnonzero(~np.isfinite(values))[0])
    return Refusal(
        "quantize.not_finite",
        f"{piece.tensor.name}[{piece.first + at}]",
        str(values[at]),
        "finite values",
        "The tensor holds NaN or infinity, so the checkpoint is damaged; fetch it again or report it to its authors.",
    )


def _values_to_bytes(kind: GGMLQuantizationType, values: int) -> int:
    block, block_bytes = GGML_QUANT_SIZES[kind]
    return values // block * block_bytes


def _bytes_to_values(kind: GGMLQuantizationType, nbytes: int) -> int:
    block, block_bytes = GGML_QUANT_SIZES[kind]
    return nbytes // block_bytes * block


def _read_exactly(descriptor: int, size: int, offset: int) -> bytearray:
    """Raises OSError when the file ends early (it was changed after its header was checked)."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    done = 0
    while done < size:
        read = os.preadv(descriptor, [view[done:]], offset + done)
        if not read:
            raise OSError(f"the file ended at byte {offset + done}; {size - done} more were promised by its header")
        done += read
    return buffer


def _write_fully(descriptor: int, data: memoryview, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(descriptor, data[done:], offset + done)
