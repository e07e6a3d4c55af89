"""A draft as a FastFlowLM package. Codes that the source has are kept; floats are quantised only where that is asked.

A container's factors are bfloat16, a GGUF's half floats: those of a GGUF may be rounded, which the account then says.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from draftmill.dflash.conversion.account import NAME, Account, Complete, TensorAccount, how
from draftmill.dflash.conversion.source import DraftSource
from draftmill.dflash.conversion.to_hf import is_bf16
from draftmill.dflash.fidelity import TensorError
from draftmill.dflash.inventory import Expected, Role, expected_tensors
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import Written, write
from draftmill.dflash.packing import prove
from draftmill.dflash.storage import MATRICES
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress
from draftmill.q4nx.encodings import Kind

_LABELS = {Kind.BLOCK_BF16.value: "BF16"}


def write_q4nx(
    source: DraftSource,
    out: Path,
    encoding: Kind | None,
    notices: Mapping[str, bytes],
    complete: Complete,
    progress: Progress,
) -> Account:
    """Writes the package `out`, whole or not at all. encoding: of projections; None keeps the source's codes.

    Raises Refused (dflash.encoding_not_stated, what `package.write` and the gate refuse), OSError.
    """
    layout = _layout(source, encoding)
    kind = encoding or _own_encoding(source, layout)
    made: list[Account] = []

    def account(written: Written) -> dict[str, bytes]:
        made.append(complete(written.files, tuple(_account(source, error) for error in written.errors)))
        return {NAME: made[0].as_bytes()}

    write(
        out,
        source.config,
        source.tensors,
        encoding=kind,
        layout=layout,
        notices=notices,
        account=account,
        prove=prove,
        progress=progress,
    )
    return made[0]


def _layout(source: DraftSource, encoding: Kind | None) -> Layout:
    """Where a container leaves a choice, what holds the source as it is."""
    plain_codebooks = any(
        not source.tensors[each.name].coded for each in _of_role(source, Role.CODEBOOK)
    ) and encoding in (None, Kind.BLOCK_BF16)
    wide = any(
        not is_bf16(np.ascontiguousarray(source.tensors[each.name][:]))
        for each in _of_role(source, Role.NORM, Role.CONV_KERNEL)
    )
    return Layout(
        codebooks=Kind.BF16 if plain_codebooks else Kind.Q4_K,
        small=Kind.F32 if wide and source.config.generation == 2 else Kind.BF16,
    )


def _of_role(source: DraftSource, *roles: Role) -> tuple[Expected, ...]:
    return tuple(each for each in expected_tensors(source.config, scalars=False) if each.role in roles)


def _own_encoding(source: DraftSource, layout: Layout) -> Kind:
    """The encoding that keeps the codes of every packed matrix. Raises Refused dflash.encoding_not_stated."""
    generation = source.config.generation
    accepted = [kind for kind in MATRICES[generation][Role.PROJECTION] if kind != Kind.BLOCK_BF16]
    lost: dict[Kind, list[str]] = {
        kind: [
            each.name
            for each in expected_tensors(source.config, scalars=False)
            if len(each.shape) == 2
            and (stored := layout.encoding(generation, each, kind)).packed
            and source.tensors[each.name].label.lower() != stored.kind.value
        ]
        for kind in accepted
    }
    best = min(accepted, key=lambda kind: len(lost[kind]))
    if lost[best]:
        label = source.tensors[lost[best][0]].label
        choices = " or ".join(kind.value for kind in accepted)
        asked = (
            f"--encoding {choices} to quantise them, and the account will tell what that costs, or bf16 to keep them"
        )
        raise Refused(
            Refusal(
                "dflash.encoding_not_stated",
                lost[best][0],
                f"{label}, as {len(lost[best]) - 1} more",
                f"codes of {choices}",
                f"The source has no codes of a package for {len(lost[best])} matrices, and none are made unasked: say "
                f"{asked}.",
            )
        )
    return best


def _account(source: DraftSource, error: TensorError) -> TensorAccount:
    label = source.tensors[error.name].label
    target = _LABELS.get(error.kind, error.kind.upper())
    return TensorAccount(
        error.name,
        error.shape,
        label,
        target,
        how(label, target, error.largest),
        error.relative_rms,
        error.largest,
        error.padded_columns,
    )
