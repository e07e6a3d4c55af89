"""The six scalars that a container repeats of its config: written under any label, read, and compared.

Their labels and shapes are not established (q4nx.md section 13, item 2), so whole numbers and floats of every width are
read, as [] or [1], ids as [n]. A float is equal when it is the config's value rounded to the label's precision.
"""

import math

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.scalars import number_bytes, read_numbers

Number = int | float

WHOLE_LABELS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64")
REAL_LABELS = ("F16", "BF16", "F32", "F64")


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

    Raises Refused: dflash.scalar_shape, and those of `read_numbers`.
    """
    if entry.shape not in ([(), (1,)] if count == 1 else [(count,)]):
        raise Refused(
            Refusal(
                "dflash.scalar_shape",
                entry.name,
                list(entry.shape),
                [count],
                "The scalar has another number of values than the config; config and container are of two drafts.",
            )
        )
    return read_numbers(entry, data)


def check_scalar(name: str, entry: Entry, data: np.ndarray, config: DraftConfig, where: str) -> Refusal | None:
    """What is wrong with the container's scalar `name`, None when it equals the config.

    Codes: dflash.scalar_differs, and those of `read_scalar`.
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


def as_stored(value: Number, label: str) -> Number | None:
    """A config's value as the label can hold it, None when it cannot."""
    if label in WHOLE_LABELS:
        if not float(value).is_integer():
            return None
        value = int(value)
    try:
        with np.errstate(over="ignore"):
            data = number_bytes(label, [value])
    except OverflowError:
        return None
    (stored,) = read_numbers(Entry("", label, (), 0, data.nbytes), data)
    return stored if math.isfinite(stored) else None
