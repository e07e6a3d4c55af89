"""A draft as a GGUF file with its target's vocabulary. What was written is read again and held against the source."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from draftmill.dflash.conversion.account import Account, Complete, TensorAccount, account_path, how
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.conversion.source import DraftSource, SourceTensor, open_gguf
from draftmill.dflash.conversion.to_hf import pieces
from draftmill.dflash.conversion.vocabulary import SIDE, prove_vocabulary, vocabulary_files
from draftmill.dflash.fidelity import Fidelity
from draftmill.dflash.package import File
from draftmill.digest import sha256_file
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stock_script import StockScript
from draftmill.gguf.stock_vocabulary import stock_vocabulary
from draftmill.new_files import new_files
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress

if TYPE_CHECKING:
    from draftmill.dflash.gguf_form.account import StoredTensor


def write_dflash_gguf(
    source: DraftSource,
    out: Path,
    target: Path | None,
    converter: StockScript | None,
    outtype: str,
    provenance: Provenance | None,
    complete: Complete,
    progress: Progress,
) -> Account:
    """Writes the file `out` and its account beside it, both whole or neither. converter: as `convert` has it.

    Raises Refused (`write_gguf`, `stock_vocabulary`, `prove_vocabulary`, dflash.codes_lost where a tensor is not what
    the writer says), OSError.
    """
    from draftmill.dflash.gguf_form.writing import write_gguf

    out.parent.mkdir(parents=True, exist_ok=True)
    work = sum(prod(tensor.shape) for tensor in source.tensors.values())
    folder = target if target and target.is_dir() else None
    by_converter = stock_vocabulary(folder, converter, progress=progress) if folder and converter else nullcontext()
    with by_converter as made, new_files(out, account_path(out, Form.GGUF)) as (beside, account_beside):
        written = write_gguf(
            source.opened,
            target,
            beside,
            vocabulary=made,
            outtype=outtype,
            provenance=provenance,
            progress=lambda what, done, total: progress(what, work * done // total, 2 * work),
        )
        vocabulary = prove_vocabulary(beside, made or target, source.path, source.form)
        if folder:
            vocabulary |= {"of": folder.resolve().name, "files": [asdict(file) for file in vocabulary_files(folder)]}
        if made and converter:
            vocabulary["by"] = converter.name
        tensors: list[TensorAccount] = []
        with open_gguf(beside) as result:
            done = work
            for each in written.tensors:
                given = source.tensors[each.name]
                tensors.append(measured(given, result.tensors[each.name], each))
                done += prod(given.shape)
                progress("reading again", done, 2 * work)
        files = (File(out.name, beside.stat().st_size, sha256_file(beside)),)
        remarks = [f"{remark.where}: {remark.sentence}" for remark in written.remarks]
        remarks += [f"{key}: no float32 is {value!r}; the nearest is written" for key, value in written.rounded.items()]
        if folder and not (folder / SIDE).is_file():
            remarks.append(
                f"{folder.resolve().name}: no {SIDE}, which says what begins and ends a text; the GGUF may not"
            )
        account = complete(files, tuple(tensors), vocabulary, tuple(remarks))
        account_beside.write_bytes(account.as_bytes())
    return account


def measured(given: SourceTensor, found: SourceTensor, said: "StoredTensor") -> TensorAccount:
    """Raises Refused dflash.codes_lost."""
    same = all(np.array_equal(rows, again) for rows, again in _side_by_side(given, found))
    fidelity = Fidelity()
    for rows, again in () if same else _side_by_side(given, found):
        fidelity.add(rows, again)
    error = fidelity.error(given.name, found.label, given.shape, 0)
    became = how(given.label, found.label, error.largest)
    if said.exact and error.largest > 0:
        raise Refused(
            Refusal(
                "dflash.codes_lost",
                given.name,
                error.largest,
                0.0,
                "Read again, the tensor is not what was to be written; look at the disk, and report this as a bug.",
            )
        )
    return TensorAccount(
        given.name,
        given.shape,
        given.label,
        found.label,
        became,
        0.0 if same else error.relative_rms,
        error.largest,
        note=said.reason,
    )


def _side_by_side(given: SourceTensor, found: SourceTensor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    first = 0
    for rows in pieces(given):
        yield rows, found[first : first + len(rows)]
        first += len(rows)
