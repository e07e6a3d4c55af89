"""Small vectors of plain numbers in a container: the scalars a draft carries beside its weights.

Their labels are not established (q4nx.md, section 13), so every plain label is read, and the caller records which it
met.
"""

import math

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.tiles import from_bf16, to_bf16

MOST = 64
"""Numbers in one tensor; a draft's longest vector names its tapped layers."""

_TYPES = {
    "I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8",
    "F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


def read_numbers(entry: Entry, data: np.ndarray) -> tuple[int | float, ...]:
    """The numbers of a scalar (shape []) or small tensor, flat; a float may be NaN or infinite.

    data: the entry's bytes, uint8. Raises Refused: q4nx.dtype_unexpected, q4nx.not_scalar (more than 64 numbers).
    """
    if entry.dtype not in _TYPES:
        raise Refused(
            Refusal(
                "q4nx.dtype_unexpected",
                entry.name,
                entry.dtype[:40],
                sorted(_TYPES),
                "A scalar under this label is not read by guess; write the container again with a plain number.",
            )
        )
    count = math.prod(entry.shape)
    if count > MOST:
        raise Refused(
            Refusal(
                "q4nx.not_scalar",
                entry.name,
                count,
                MOST,
                "A scalar or a short list was expected here; the tensor is another one, or the container is damaged.",
            )
        )
    stored = data.view(_TYPES[entry.dtype])
    return tuple((from_bf16(stored) if entry.dtype == "BF16" else stored).tolist())


def number_bytes(dtype: str, values: tuple[int | float, ...] | list[int | float]) -> np.ndarray:
    """uint8 bytes of numbers under a label of `read_numbers`. Raises OverflowError when one does not fit, KeyError."""
    if dtype == "BF16":
        return to_bf16(np.array(values, np.float32)).view(np.uint8)
    return np.array(values, _TYPES[dtype]).view(np.uint8)
