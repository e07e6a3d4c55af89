"""From an upstream checkpoint (config.json and safetensors) to a package, tensor by tensor in bounded memory."""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from draftmill.dflash.config import DraftConfig, read_config
from draftmill.dflash.gate import gate
from draftmill.dflash.inventory import Variant, match
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import Written, write
from draftmill.dflash.storage import PUBLISHED
from draftmill.gguf.checkpoint import SourceTensor, read_checkpoint
from draftmill.gguf.half_precision import BYTES, cast, stored
from draftmill.intake.findings import Findings
from draftmill.outcome import InputOutput, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.q4nx.encodings import Kind

NOTICES = ("LICENSE", "LICENCE", "NOTICE")
NOTICE_LIMIT = 1 << 20


@dataclass(frozen=True)
class Packed:
    """config: what the checkpoint's says. variants: which spellings of names the checkpoint has."""

    config: DraftConfig
    encoding: Kind
    variants: tuple[Variant, ...]
    written: Written


class StoredRows:
    """A tensor of a safetensors file, read by ranges of rows as float32."""

    def __init__(self, tensor: SourceTensor) -> None:
        self._tensor = tensor
        self.shape = tensor.shape

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(self.shape[0])
        width = prod(self.shape[1:]) * BYTES[self._tensor.kind]
        with self._tensor.file.open("rb", buffering=0) as file:
            raw = os.pread(file.fileno(), (last - first) * width, self._tensor.offset + first * width)
        if len(raw) != (last - first) * width:
            raise InputOutput(
                f"{self._tensor.file.name} ends inside {self._tensor.name}: it is being written, or was cut short.",
                code="dflash.checkpoint_changed",
                where=self._tensor.name,
            )
        return cast(stored(raw, self._tensor.kind), self._tensor.kind, "F32").reshape(last - first, *self.shape[1:])


def pack(
    checkpoint: Path,
    out: Path,
    encoding: Kind | None = None,
    *,
    causal: bool | None = None,
    layout: Layout | None = None,
    progress: Progress = silent,
) -> Packed:
    """Packs a Hugging Face DFlash checkpoint into the folder `out`; encoding None is the published one of its
    generation (q4_1, then Q4_K). LICENSE and NOTICE files come along. A package that the gate refuses is not made.

    Raises Refused (`read_config`, `read_checkpoint`, `match`, `write`, `gate`), BadConfiguration, InputOutput, OSError.
    """
    config = read_config(checkpoint, causal=causal)
    encoding = encoding or PUBLISHED[config.generation]
    sources = {tensor.name: tensor for tensor in read_checkpoint(checkpoint)}
    matched = match(config, sources, container=False)
    findings = Findings()
    findings.extend(matched.refusals("checkpoint", config.generation))
    findings.raise_if_any()
    written = write(
        out,
        config,
        {own: StoredRows(sources[name]) for own, name in matched.found.items()},
        encoding=encoding,
        layout=layout,
        notices=_notices(checkpoint),
        prove=_prove,
        progress=progress,
    )
    return Packed(config, encoding, matched.variants, written)


def _prove(folder: Path) -> None:
    """Raises Refused with a finding for each one of the gate's: a package that it refuses is not made."""
    result = gate(folder)
    refusals = [
        Refusal(
            found.code,
            found.where,
            found.measured,
            found.expected,
            f"The package of this checkpoint fails the gate's check {check.id} ({check.title}), so it is not written: "
            "the checkpoint is damaged or was never trained. Take it from its publisher again.",
        )
        for check in result.checks
        for found in check.refusals
    ]
    if refusals:
        raise Refused(*refusals)


def _notices(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name.upper().startswith(NOTICES) and path.is_file() and path.stat().st_size <= NOTICE_LIMIT
    }
