"""From an upstream checkpoint (config.json and safetensors) to a package, tensor by tensor in bounded memory."""

from dataclasses import dataclass
from pathlib import Path

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config import DraftConfig
from draftmill.dflash.gate import gate
from draftmill.dflash.inventory import Variant
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import Written, write
from draftmill.dflash.storage import PUBLISHED
from draftmill.outcome import Refusal, Refused
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

    Raises Refused (`Checkpoint.open`, `write`, `gate`), BadConfiguration, InputOutput, OSError.
    """
    source = Checkpoint.open(checkpoint, causal=causal)
    encoding = encoding or PUBLISHED[source.config.generation]
    written = write(
        out,
        source.config,
        source.tensors,
        encoding=encoding,
        layout=layout,
        notices=notices_of(checkpoint),
        prove=prove,
        progress=progress,
    )
    return Packed(source.config, encoding, source.variants, written)


def prove(folder: Path) -> None:
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


def notices_of(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.name.upper().startswith(NOTICES) and path.is_file() and path.stat().st_size <= NOTICE_LIMIT
    }
