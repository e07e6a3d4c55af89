"""How each tensor of a draft is stored in a GGUF file: its type, and where the bytes of its rows come from."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftmill.dflash.gguf_form.tensor_names import gguf_name
from draftmill.dflash.inventory import Expected
from draftmill.dflash.package_tensors import Matrix
from draftmill.gguf.half_precision import all_finite, cast
from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.conversion import Rounding
from draftmill.q4nx.tiles import GROUP, ROWS

PIECE = 1 << 18
"""Weights stored at a time."""


class Piece(NamedTuple):
    """Some rows as stored, uint8; how many units of them (`StoredTensor`) moved, and by how much at most."""

    data: np.ndarray
    inexact: int = 0
    largest: float = 0.0


@dataclass(frozen=True)
class Planned:
    """piece(first, last): the rows [first, last) of `expected.shape[0]`. step: how many are taken at a time.

    The rest as in `StoredTensor`.
    """

    expected: Expected
    kind: GGMLQuantizationType
    source: str
    codes_kept: bool | None
    units: int
    reason: str
    piece: Callable[[int, int], Piece]
    step: int

    @property
    def name(self) -> str:
        """In the file."""
        return gguf_name(self.expected.name)

    @property
    def nbytes(self) -> int:
        block, size = GGML_QUANT_SIZES[self.kind]
        return prod(self.expected.shape) // block * size


def plain_tensor(
    expected: Expected, values: Matrix, source: str, kind: GGMLQuantizationType, reason: str, *, align: int = 1
) -> Planned:
    """values: float32 by ranges of rows, stored as F32, F16 or BF16. source: how they were stored. align: of ranges."""

    def piece(first: int, last: int) -> Piece:
        given = np.ascontiguousarray(values[first:last]).reshape(-1)
        stored = cast(given, "F32", kind.name)
        if not all_finite(stored, kind.name):
            raise _not_held(expected.name, given, kind)
        moved = np.abs(cast(stored, kind.name, "F32") - given)
        return Piece(stored.view(np.uint8), int(np.count_nonzero(moved)), float(moved.max(initial=0)))

    return Planned(expected, kind, source, None, prod(expected.shape), reason, piece, _step(expected, align))


def _not_held(name: str, given: np.ndarray, kind: GGMLQuantizationType) -> Refused:
    """given: as they are in the source, of which some are none or too large."""
    broken = int(np.count_nonzero(~np.isfinite(given)))
    if broken:
        said = (
            "The tensor holds infinities or numbers that are none: the draft is damaged; take it from its source again."
        )
        return Refused(Refusal("dflash.gguf_not_finite", name, broken, "finite values", said))
    largest = float(np.abs(given).max())
    said = f"{kind.name} cannot hold values as large as these; convert to bf16 or f32."
    return Refused(Refusal("dflash.gguf_not_finite", name, largest, f"values that {kind.name} holds", said))


def coded_tensor(
    expected: Expected,
    kind: GGMLQuantizationType,
    source: str,
    blocks: Callable[[int, int], tuple[np.ndarray, Rounding]],
    reason: str,
) -> Planned:
    """A packed matrix whose codes are kept. blocks(first, last): those of rows from a whole tile on, and their cost."""

    def piece(first: int, last: int) -> Piece:
        data, cost = blocks(first, last)
        return Piece(data, cost.inexact, cost.bound)

    return Planned(expected, kind, source, True, prod(expected.shape) // GROUP, reason, piece, _step(expected, ROWS))


def stored_tensor(
    expected: Expected, kind: GGMLQuantizationType, stored: np.ndarray, *, coded: bool, reason: str
) -> Planned:
    """A tensor of a GGUF as it is. stored: uint8 [rows, bytes of a row]. coded: whether it has codes."""
    units = prod(expected.shape) // (GROUP if coded else 1)
    return Planned(
        expected,
        kind,
        kind.name,
        True if coded else None,
        units,
        reason,
        lambda first, last: Piece(stored[first:last]),
        _step(expected, 1),
    )


def _step(expected: Expected, align: int) -> int:
    """Rows of about PIECE weights, a multiple of `align`."""
    return max(1, PIECE // (prod(expected.shape[1:]) * align)) * align
