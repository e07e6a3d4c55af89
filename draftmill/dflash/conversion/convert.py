"""From any form of a draft to any other."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftmill.dflash.conversion.account import Account, TensorAccount, account_path, read_files
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.conversion.source import open_source
from draftmill.dflash.conversion.to_hf import write_hf
from draftmill.dflash.conversion.to_q4nx import write_q4nx
from draftmill.dflash.package import File
from draftmill.dflash.packing import notices_of
from draftmill.dflash.vouching import check_vouched
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stock_script import StockScript
from draftmill.outcome import BadConfiguration
from draftmill.place_beside import clear_left
from draftmill.progress import Progress, silent
from draftmill.q4nx.encodings import Kind

ENCODINGS = {"q4_1": Kind.Q4_1, "q4_k": Kind.Q4_K, "bf16": Kind.BLOCK_BF16}
"""What a package's matrices can be asked to be."""


def convert(
    source: Path,
    out: Path,
    to: Form,
    *,
    target: Path | None = None,
    converter: StockScript | None = None,
    outtype: str = "auto",
    provenance: Provenance | None = None,
    encoding: Kind | None = None,
    causal: bool | None = None,
    progress: Progress = silent,
) -> Account:
    """Writes `out` (a folder, or a file for a GGUF), which may not be there before, and its account in or beside it.

    target: the target's folder or GGUF, whose vocabulary a GGUF draft carries; None only for a source that is one.
    converter: llama.cpp's own, to write the vocabulary of a target's folder; None writes it here.
    outtype: of a GGUF's matrices, as `write_gguf` has it. provenance: what a GGUF says of its origin.
    encoding: of a package's projections; None keeps the source's codes, and refuses a source without. causal: what the
    caller knows about sliding layers, for configs that do not state it.
    Raises Refused (`check_vouched`, `open_source`, and the writer of the form), BadConfiguration
    (dflash.output_exists, output_name, output_place), InputOutput, OSError.
    """
    source = Path(os.path.abspath(source))  # '.' has no name, by which refusals and a GGUF call it
    _check_place(out, to)
    if source.is_dir():
        check_vouched(source)
    with open_source(source, causal=causal) as draft:

        def complete(
            out: tuple[File, ...],
            tensors: tuple[TensorAccount, ...],
            vocabulary: Mapping[str, Any] | None = None,
            remarks: tuple[str, ...] = (),
        ) -> Account:
            said = tuple(f"{remark.where}: {remark.sentence}" for remark in draft.config.remarks)
            return Account(
                draft.form,
                read_files(draft),
                to,
                out,
                draft.config,
                tensors,
                left_behind=draft.config.unknown,
                vocabulary=vocabulary,
                remarks=(*said, *(remark for remark in remarks if not any(remark in each for each in said))),
            )

        notices = notices_of(source) if source.is_dir() else {}
        try:
            if to == Form.HF:
                return write_hf(draft, out, notices, complete, progress)
            if to == Form.GGUF:
                from draftmill.dflash.conversion.to_gguf import write_dflash_gguf

                return write_dflash_gguf(draft, out, target, converter, outtype, provenance, complete, progress)
            return write_q4nx(draft, out, encoding, notices, complete, progress)
        except FileExistsError as error:  # another has made it meanwhile
            raise _taken(out) from error


def _check_place(out: Path, to: Form) -> None:
    if to == Form.GGUF and out.suffix != ".gguf":
        raise BadConfiguration(
            f"{out.name} is to be a GGUF, by whose name it is known; let it end with .gguf.", code="dflash.output_name"
        )
    place = next(each for each in out.absolute().parents if each.exists())
    if not place.is_dir():
        raise BadConfiguration(
            f"{place} is no folder, so that {out} cannot be written; name another place.", code="dflash.output_place"
        )
    if place == out.absolute().parent:
        clear_left(out)
    for each in (out, account_path(out, to)):
        if each.exists() or each.is_symlink():
            raise _taken(each)


def _taken(place: Path) -> BadConfiguration:
    return BadConfiguration(
        f"{place} is there already; name a place that is not, or remove it.", code="dflash.output_exists"
    )
