"""The six scalars that a container repeats of its config: written under any label, read, and compared.

Their labels and shapes are not established (q4nx.md section 13, item 2), so whole numbers and floats of every width are
read, as [] or [1], ids as [n]. A float is equal when it is the config's value rounded to the label's precision.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from draftmill.dflash.config import DraftConfig, Survey
from draftmill.outcome import Refusal, Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.scalars import number_bytes, read_numbers

Number = int | float

WHOLE_LABELS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64")
REAL_LABELS = ("F16", "BF16", "F32", "F64")


KEYS = {
    "block_size": "block_size",
    "target_layer_ids": "target_layer_ids",
    "sliding_window": "sliding_window",
    "rope_theta": "rope_theta",
    "rms_eps": "rms_norm_eps",
    "embedding_scale": "input_embedding_scale",
}
"""Scalar -> the config's key that it repeats."""


def scalar_values(config: DraftConfig | Survey) -> dict[str, tuple[Number, ...]]:
    """Name -> what the container has to say; of a survey, without what is in doubt. Where no layer slides, the window
    is 0."""
    if isinstance(config, DraftConfig):
        values: Mapping[str, Any] = vars(config) | {"rope_theta": config.rope.theta}
    else:
        values = config.values
    return {name: _repeated(values[key]) for name, key in KEYS.items() if key in values}


def _repeated(value: Any) -> tuple[Number, ...]:
    return value if isinstance(value, tuple) else (value or 0,)


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
                "The scalar has as many values as the config, in another shape than any writer is known to give it; "
                "pack the draft again."
                if prod(entry.shape) == count
                else "The scalar has another number of values than the config; config and container are of two drafts. "
                "Download the package again.",
            )
        )
    return read_numbers(entry, data)


def check_scalar(name: str, entry: Entry, data: np.ndarray, config: DraftConfig | Survey, where: str) -> Refusal | None:
    """What is wrong with the container's scalar `name`, None when it equals the config, which gives it a value.

    Codes: dflash.scalar_differs, and those of `read_scalar`.
    """
    values = scalar_values(config)[name]
    try:
        stored = read_scalar(entry, data, len(values))
    except Refused as refused:
        (refusal,) = refused.refusals
        return replace(refusal, where=f"{where}:{entry.name}")
    if list(stored) == [as_stored(value, entry.dtype) for value in values]:
        return None
    return Refusal(
        "dflash.scalar_differs",
        f"{where}:{entry.name}",
        [value if math.isfinite(value) else repr(value) for value in stored],
        list(values),
        _difference(name, list(stored), list(values), config.stated(KEYS[name])),
    )


def _difference(name: str, stored: list[Number], values: list[Number], stated: bool) -> str:
    if name == "embedding_scale" and not stated:
        return (
            f"The config states no {KEYS[name]}, which means 1, and the container says otherwise: an engine that reads "
            "the one and one that reads the other run two drafts. State it in the config, or download it again."
        )
    if name == "sliding_window" and not stated:
        return (
            "By the config no layer slides, which is a window of 0, and the container has one: one of them was "
            "changed, or they are of two drafts. Download the package again."
        )
    shift = ""
    if name == "target_layer_ids" and stored == [value + 1 for value in values]:
        shift = "Each of the container's is one more, as GGUF stores them (L+1) and Hugging Face does not (L). "
    elif name == "target_layer_ids" and stored == [value - 1 for value in values]:
        shift = "Each of the config's is one more, as GGUF stores them (L+1) and Hugging Face does not (L). "
    return (
        f"The container's {name} is not the config's: one of them was changed, or they are of two drafts. {shift}"
        "Download the package again."
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
