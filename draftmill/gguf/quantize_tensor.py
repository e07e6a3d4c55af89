"""Values to blocks: ggml's own routine, or for the K-quants a faster one that is first shown to give the same bytes."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from gguf.constants import GGMLQuantizationType

from draftmill.gguf.ggml_library import GgmlLibrary

_T = GGMLQuantizationType
Encoder = Callable[[np.ndarray], np.ndarray]
"""float32 values (n,) to the bytes of their blocks, uint8."""

PROBE_VALUES = 1 << 14


def encoder(kind: GGMLQuantizationType, library: GgmlLibrary, *, fast: bool = True) -> Encoder:
    """The encoder of a type. `fast=False` always gives ggml's."""
    swift = admitted_encoder(kind, library) if fast else None
    return swift or (lambda values: library.quantize(kind, values))


@lru_cache
def admitted_encoder(kind: GGMLQuantizationType, library: GgmlLibrary) -> Encoder | None:
    """The fast encoder, or None where there is none, Numba is missing, or the probe's bytes differ from ggml's.

    The probe is needed because ggml's bytes depend on how it was compiled: with fused multiply-add its sums round
    otherwise.
    """
    if kind not in (_T.Q4_K, _T.Q5_K, _T.Q6_K):
        return None
    try:
        from draftmill.gguf import quantize_kquants as kquants
    except ImportError:
        return None
    fast = {_T.Q4_K: kquants.encode_q4_k, _T.Q5_K: kquants.encode_q5_k, _T.Q6_K: kquants.encode_q6_k}[kind]
    values = probe_values()
    return fast if np.array_equal(fast(values), library.quantize(kind, values)) else None


def probe_values() -> np.ndarray:
    """float32 (PROBE_VALUES,): normal, one-sided, sparse, constant and very small blocks, the same each time."""
    x = np.random.default_rng(0).standard_normal((8, PROBE_VALUES // 8), np.float32)
    x[1], x[2] = np.abs(x[1]), -np.abs(x[2]) - np.float32(1)
    x[3, np.arange(x.shape[1]) % 16 != 0] = 0
    x[4] = np.repeat(x[4, ::32], 32)
    x[5] *= np.float32(1e-7)
    x[6] = np.round(x[6] * 2)
    x[7] *= np.repeat(np.float32(10) ** (np.arange(x.shape[1] // 32) % 9 - 6).astype(np.float32), 32)
    return x.ravel()
