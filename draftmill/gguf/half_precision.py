"""Exact casts between BF16, F16 and F32, as llama.cpp's converter makes them: through F32, nearest even.

NumPy has no bfloat16, so BF16 travels as its 16 bits. Sources: ggml_compute_fp32_to_bf16 in ggml's ggml-impl.h
(rounding of the lower 16 bits to nearest even); IEEE 754 binary16, which NumPy's float16 is.
"""

import numpy as np

BYTES = {"BF16": 2, "F16": 2, "F32": 4}
"""Bytes of an element, by the name that safetensors and GGUF share."""

_STORED: dict[str, np.dtype] = {"BF16": np.dtype("<u2"), "F16": np.dtype("<f2"), "F32": np.dtype("<f4")}
_BITS = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}
_EXPONENT = {"BF16": 0x7F80, "F16": 0x7C00, "F32": 0x7F800000}


def stored(raw: bytes | bytearray | memoryview, kind: str) -> np.ndarray:
    """The elements in `raw` without copying: uint16 bits for BF16, else float16 or float32."""
    return np.frombuffer(raw, _STORED[kind])


def cast(values: np.ndarray, source: str, target: str) -> np.ndarray:
    """`values` as `stored` gives them, cast to `target` in the same form and shape.

    What does not fit an F16 becomes infinite: ask `all_finite` of the result.
    """
    if source == target:
        return values
    wide = values
    if source == "BF16":
        wide = np.left_shift(values, 16, dtype=np.uint32).view(np.float32)
    elif source == "F16":
        wide = values.astype(np.float32)
    if target == "F32":
        return wide
    if target == "F16":
        with np.errstate(over="ignore", invalid="ignore"):
            return wide.astype(np.float16)
    bits = wide.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def all_finite(values: np.ndarray, kind: str) -> bool:
    """Whether no element is infinite or not a number."""
    exponent = _EXPONENT[kind]
    bits = values.view(_BITS[kind])
    return bool((bits & exponent).max(initial=0) < exponent)
