"""From any form of a draft to any other."""

from pathlib import Path

from draftmill.dflash.conversion.account import (
    Account,
    TensorAccount,
    read_files,
)
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.conversion.source import open_source
from draftmill.dflash.conversion.to_hf import write_hf
from draftmill.dflash.conversion.to_q4nx import write_q4nx
from draftmill.dflash.package import File
from draftmill.dflash.packing import notices_of
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.q4nx.encodings import Kind

ENCODINGS = {"q4_1": Kind.Q4_1, "q4_k": Kind.Q4_K, "bf16": Kind.BLOCK_BF16}
"""What a package's matrices can be asked to be."""


def convert(
    source: Path,
    out: Path,
    to: Form,
    *,
    encoding: Kind | None = None,
    causal: bool | None = None,
    progress: Progress = silent,
) -> Account:
    """Writes `out` (a folder, or a file for a GGUF) and its account beside or in it; neither may be there before.

    encoding: of a package's projections; None keeps the source's codes, and refuses a source without. causal: what the
    caller knows about sliding layers, for configs that do not state it.
    Raises Refused (`open_source`, and the writer of the form), BadConfiguration (dflash.output_exists), InputOutput,
    OSError.
    """
    if out.exists() or out.is_symlink():
        raise BadConfiguration(
            f"{out} is there already; name a place that is not, or remove it.", code="dflash.output_exists"
        )
    with open_source(source, causal=causal) as draft:
        remarks = tuple(f"{remark.where}: {remark.sentence}" for remark in draft.config.remarks)

        def complete(files: tuple[File, ...], tensors: tuple[TensorAccount, ...]) -> Account:
            return Account(
                draft.form,
                read_files(draft),
                to,
                files,
                draft.config,
                tensors,
                left_behind=draft.config.unknown,
                remarks=remarks,
            )

        notices = notices_of(source) if source.is_dir() else {}
        if to == Form.HF:
            return write_hf(draft, out, notices, complete, progress)
        return write_q4nx(draft, out, encoding, notices, complete, progress)
