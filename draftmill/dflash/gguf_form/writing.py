"""Writes a draft of any form as a GGUF file, and accounts for every tensor."""

import os
from collections import Counter
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

import draftmill
from draftmill.dflash.gguf_form import keys
from draftmill.dflash.gguf_form.account import StoredTensor, WrittenGguf
from draftmill.dflash.gguf_form.config_writing import add_config, check_writable
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.plan import Planned
from draftmill.dflash.gguf_form.sources import Source, plan
from draftmill.dflash.gguf_form.target import Target, own_vocabulary, read_target
from draftmill.gguf.metadata import Provenance, add_own_keys, describe, own_keys
from draftmill.gguf.tensor_layout import padded
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file

if TYPE_CHECKING:
    from gguf import GGUFWriter, LlamaFileType

OUTTYPES = ("auto", "codes", "f32", "f16", "bf16")


def write_gguf(
    source: Source,
    target: Path | None,
    out: Path,
    *,
    vocabulary: Path | None = None,
    outtype: str = "auto",
    provenance: Provenance | None = None,
    progress: Progress = silent,
) -> WrittenGguf:
    """Writes `out`, whole or not at all. target: the target's folder or GGUF, whose vocabulary the draft carries; None
    for a source that is a GGUF and keeps its own.

    vocabulary: as `read_target` has it. outtype: of matrices, as `plan` says. provenance: what the file says of its
    origin.
    Raises BadConfiguration dflash.outtype, dflash.target_needed; Refused: `read_target`, `Target.check`,
    `check_writable`, dflash.gguf_not_finite; OSError.
    """
    from gguf import GGUFType, GGUFWriter

    if outtype not in OUTTYPES:
        raise BadConfiguration(f"Output type {outtype!r} is unknown; choose one of {OUTTYPES}.", code="dflash.outtype")
    path = source.path if isinstance(source, GgufDraft) else source.folder
    config = source.config
    remarks = check_writable(config, path.name)
    of = _vocabulary(source, target, vocabulary)
    of.check(config, path.name)
    planned = plan(source, outtype)
    file_type = _file_type(planned)
    provenance = provenance or Provenance(name=path.name.removesuffix(".gguf"))

    writer = GGUFWriter(None, keys.ARCHITECTURE)
    for tensor in planned:
        writer.add_tensor_info(tensor.name, tensor.expected.shape, np.dtype(np.float32), tensor.nbytes, tensor.kind)
    writer.add_type(GGUFType.MODEL)
    weights = sum(prod(tensor.expected.shape) for tensor in planned)
    describe(provenance, weights, None if path.is_file() else path).set_gguf_meta_model(writer)
    add_own_keys(writer, own_keys(provenance, f"native {draftmill.__version__}", {}))
    if config.num_target_layers is not None:
        writer.add_uint32(keys.NUM_TARGET_LAYERS, config.num_target_layers)
    rounded = add_config(writer, config, int(file_type), mrope=of.mrope)
    of.add_vocabulary(writer, config)
    with whole_file(out) as beside:
        accounts, size = _write(writer, planned, beside, progress)
    return WrittenGguf(out, size, file_type.name, tuple(accounts), remarks, rounded)


def _vocabulary(source: Source, target: Path | None, vocabulary: Path | None) -> Target:
    if target is not None:
        return read_target(target, vocabulary)
    if isinstance(source, GgufDraft):
        return own_vocabulary(source)
    raise BadConfiguration(
        "A GGUF draft carries its target's vocabulary; name the target's folder or GGUF.", code="dflash.target_needed"
    )


def _file_type(planned: list[Planned]) -> "LlamaFileType":
    from gguf import GGMLQuantizationType, LlamaFileType

    kinds: Counter[GGMLQuantizationType] = Counter()
    for tensor in planned:
        if len(tensor.expected.shape) == 2:
            kinds[tensor.kind] += prod(tensor.expected.shape)
    most = kinds.most_common(1)[0][0].name
    # Of K-quants a file type names a mix, and small is the one that is nearly all of one type.
    named = ("ALL_F32",) if most == "F32" else (f"MOSTLY_{most}", f"MOSTLY_{most}_S")
    return next((LlamaFileType[each] for each in named if each in LlamaFileType.__members__), LlamaFileType.GUESSED)


def _write(
    writer: "GGUFWriter", planned: list[Planned], path: Path, progress: Progress
) -> tuple[list[StoredTensor], int]:
    from gguf import GGUF_DEFAULT_ALIGNMENT

    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    total, done = sum(tensor.nbytes for tensor in planned), 0
    accounts = []
    with path.open("ab") as file:
        file.seek(0, os.SEEK_END)
        _pad(file, GGUF_DEFAULT_ALIGNMENT)
        for tensor in planned:
            accounts.append(_write_tensor(tensor, file))
            _pad(file, GGUF_DEFAULT_ALIGNMENT)
            done += tensor.nbytes
            progress("writing", done, total)
        return accounts, file.tell()


def _write_tensor(tensor: Planned, file: BinaryIO) -> StoredTensor:
    inexact, largest = 0, 0.0
    rows = tensor.expected.shape[0]
    for first in range(0, rows, tensor.step):
        piece = tensor.piece(first, min(first + tensor.step, rows))
        file.write(np.ascontiguousarray(piece.data).data)
        inexact, largest = inexact + piece.inexact, max(largest, piece.largest)
    return StoredTensor(
        name=tensor.expected.name,
        stored=tensor.name,
        source=tensor.source,
        target=tensor.kind.name,
        codes_kept=tensor.codes_kept,
        units=tensor.units,
        inexact=inexact,
        largest=largest,
        reason=tensor.reason,
    )


def _pad(file: BinaryIO, alignment: int) -> None:
    at = file.tell()
    file.write(b"\0" * (padded(at, alignment) - at))
