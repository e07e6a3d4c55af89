"""What a value in a draft's config may look like: one `Kind` for each sort, none of which guesses or converts text."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

FULL, SLIDING = "full_attention", "sliding_attention"


class Kind(NamedTuple):
    """parse returns the value, or None when it is not one; expected is how to say what would be."""

    parse: Callable[[Any], Any]
    expected: str


def whole(low: int, high: int) -> Kind:
    def parse(value: Any) -> int | None:
        return value if type(value) is int and low <= value <= high else None

    return Kind(parse, f"a whole number from {low} to {high}")


def _positive(value: Any) -> float | None:
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _ids(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and 0 < len(value) <= 1024 and all(type(each) is int for each in value):
        return tuple(value)
    return None


def _layer_types(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and 0 < len(value) <= 1024 and all(each in (FULL, SLIDING) for each in value):
        return tuple(value)
    return None


POSITIVE = Kind(_positive, "a finite number above 0")
FLAG = Kind(lambda value: value if type(value) is bool else None, "true or false")
TEXT = Kind(lambda value: value if type(value) is str and value else None, "text")
IDS = Kind(_ids, "a list of whole numbers")
LAYER_TYPES = Kind(_layer_types, f"a list of {FULL} and {SLIDING}")
