"""The choices a writer of packages has where published pages leave the form open; the defaults are the likeliest."""

from dataclasses import dataclass, replace
from typing import Literal

from draftmill.dflash import names
from draftmill.dflash.inventory import Expected, Role
from draftmill.dflash.scalars import REAL_LABELS, WHOLE_LABELS
from draftmill.dflash.storage import MATRICES, SMALL
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.writing import ENGINE_ALIGNMENT


@dataclass(frozen=True)
class Layout:
    """form: None is flat in generation 1 and a grid in 2, as published. small: of norms and base kernels.

    aligned: header and tensors on multiples of 64 bytes with metadata, as the engine's own packer writes them.
    """

    tensor_prefix: str = "model."
    scalar_prefix: str = "dflash."
    form: Literal["flat", "grid"] | None = None
    whole_label: str = "I32"
    real_label: str = "F32"
    scalar_shape: Literal["[1]", "[]"] = "[1]"
    codebooks: Kind = Kind.Q4_K
    codebook_suffix: str = ""
    small: Kind = Kind.BF16
    aligned: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for a choice that no published page leaves open."""
        choices = (
            (self.tensor_prefix, names.TENSOR_PREFIXES),
            (self.scalar_prefix, names.SCALAR_PREFIXES),
            (self.whole_label, WHOLE_LABELS + REAL_LABELS),
            (self.real_label, REAL_LABELS),
            (self.codebooks, MATRICES[2][Role.CODEBOOK]),
            (self.codebook_suffix, ("", ".weight")),
            (self.small, SMALL[2]),
        )
        for choice, open_to in choices:
            if choice not in open_to:
                raise ValueError(f"{choice!r} is none of {open_to}")

    @property
    def alignment(self) -> int:
        return ENGINE_ALIGNMENT if self.aligned else 1

    def spelled(self, name: str) -> str:
        """The name in the file."""
        if name in names.SCALARS:
            return self.scalar_prefix + name
        suffix = self.codebook_suffix if name in (names.PREDECESSOR, names.SUCCESSOR) else ""
        return self.tensor_prefix + name + suffix

    def label(self, scalar: str) -> str:
        return self.real_label if scalar in ("rope_theta", "rms_eps", "embedding_scale") else self.whole_label

    def encoding(self, generation: int, expected: Expected, packed: Kind) -> Encoding:
        """How a matrix is stored when projections are packed as `packed`."""
        accepted = MATRICES[generation][expected.role]
        kind = self.codebooks if expected.role == Role.CODEBOOK else packed if packed in accepted else accepted[0]
        rows, columns = expected.shape
        encoding = Encoding(kind, rows, columns)
        return (
            replace(encoding, form=self.form or ("flat" if generation == 1 else "grid"))
            if encoding.packed
            else encoding
        )
