"""The six scalars that a container repeats of its config: written under any label, read, and compared.

Their labels and shapes are not established (q4nx.md section 13, item 2), so whole numbers and floats of every width are
read, as [] or [1], ids as [n]. A float is equal when it is the config's value rounded to the label's precision.
"""

import math
from typing import Any

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.tiles import from_bf16, to_bf16

Number = int | float

_WHOLE = {"I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8"}
_FLOAT = {"F32": "<f4", "F64": "<f8", "BF16": "<u2"}
_LARGEST_SINGLE = float(np.finfo(np.float32).max)
LABELS = (*_WHOLE, *_FLOAT)


def scalar_values(config: DraftConfig) -> dict[str, tuple[Number, ...]]:
    """Name -> what the container has to say. A draft without sliding layers has a window of 0."""
    return {
        "block_size": (config.block_size,),
        "target_layer_ids": config.target_layer_ids,
        "sliding_window": (config.sliding_window or 0,),
        "rope_theta": (config.rope.theta,),
        "rms_eps": (config.rms_norm_eps,),
        "embedding_scale": (config.input_embedding_scale,),
    }


def read_scalar(entry: Entry, data: np.ndarray, count: int) -> tuple[Number, ...]:
    """The values of a scalar tensor of `count` values; data: its bytes, uint8.

    Raises Refused: dflash.scalar_dtype, dflash.scalar_shape.
    """
    if entry.dtype not in LABELS:
        raise _refused("scalar_dtype", entry, entry.dtype[:40], list(LABELS), "is under a label that no number has")
    if entry.shape not in ([(), (1,)] if count == 1 else [(count,)]):
        raise _refused(
            "scalar_shape", entry, list(entry.shape), [count], "has another number of values than the config"
        )
    if entry.dtype in _WHOLE:
        return tuple(int(value) for value in data.view(_WHOLE[entry.dtype]))
    values = data.view(_FLOAT[entry.dtype])
    return tuple(float(value) for value in (from_bf16(values) if entry.dtype == "BF16" else values))


def check_scalar(name: str, entry: Entry, data: np.ndarray, config: DraftConfig, where: str) -> Refusal | None:
    """What is wrong with the container's scalar `name`, None when it equals the config.

    Codes: dflash.scalar_dtype, scalar_shape, scalar_differs.
    """
    values = scalar_values(config)[name]
    try:
        stored = read_scalar(entry, data, len(values))
    except Refused as refused:
        return refused.refusals[0]
    if list(stored) == [as_stored(value, entry.dtype) for value in values]:
        return None
    shifted = name == "target_layer_ids" and list(stored) in ([v + 1 for v in values], [v - 1 for v in values])
    return Refusal(
        "dflash.scalar_differs",
        f"{where}:{entry.name}",
        [value if math.isfinite(value) else repr(value) for value in stored],
        list(values),
        f"The container's {name} is not the config's: one of them was changed, or they are of two drafts. "
        + ("Each id differs by one, as between Hugging Face (L) and GGUF (L+1). " if shifted else "")
        + "Download the package again.",
    )


def as_stored(value: Number, dtype: str) -> Number | None:
    """A config's value as the label can hold it, None when it cannot."""
    if dtype in _WHOLE:
        limits = np.iinfo(_WHOLE[dtype])
        whole = float(value).is_integer() and limits.min <= value <= limits.max
        return int(value) if whole else None
    if dtype == "F64":
        return float(value)
    if abs(value) > _LARGEST_SINGLE:
        return None
    single = np.float32(value)
    rounded = from_bf16(to_bf16(np.array([single])))[0] if dtype == "BF16" else single
    return float(rounded) if math.isfinite(rounded) else None


def scalar_bytes(values: tuple[Number, ...], dtype: str) -> np.ndarray:
    """The stored bytes, uint8. Raises ValueError for a value that the label cannot hold."""
    stored: list[Any] = [as_stored(value, dtype) for value in values]
    if None in stored:
        raise ValueError(f"{dtype} cannot hold {values}")
    if dtype == "BF16":
        return to_bf16(np.array(stored, np.float32)).view(np.uint8)
    return np.array(stored, (_WHOLE | _FLOAT)[dtype]).view(np.uint8)


def _refused(code: str, entry: Entry, measured: Any, expected: Any, what: str) -> Refused:
    return Refused(
        Refusal(
            f"dflash.{code}",
            entry.name,
            measured,
            expected,
            f"The scalar {what}, so it cannot be held against the config; the container is not of a known writer.",
        )
    )
