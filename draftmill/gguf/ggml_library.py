"""ggml as the xllamacpp package brings it: the reference quantizers, through ctypes, which lets go of the GIL."""

import ctypes
import importlib.util
import platform
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration

PACKAGE = "xllamacpp"

_P, _I64, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_size_t
_FUNCTIONS = {
    "ggml_quantize_chunk": (_SIZE, [_INT, _P, _P, _I64, _I64, _I64, _P]),
    "ggml_cpu_fp16_to_fp32": (None, [_P, _P, _I64]),
    "ggml_cpu_bf16_to_fp32": (None, [_P, _P, _I64]),
    "ggml_validate_row_data": (ctypes.c_bool, [_INT, _P, _SIZE]),
    "ggml_version": (ctypes.c_char_p, []),
}
_TO_FLOAT32 = {
    GGMLQuantizationType.F16: "ggml_cpu_fp16_to_fp32",
    GGMLQuantizationType.BF16: "ggml_cpu_bf16_to_fp32",
}


@dataclass(frozen=True)
class GgmlLibrary:
    """The loaded library. `version` names the package's version and ggml's own."""

    path: Path
    version: str
    _handle: ctypes.CDLL

    def digest(self) -> str:
        """SHA-256 of the shared library."""
        return sha256_file(self.path)

    def quantize(self, kind: GGMLQuantizationType, values: np.ndarray) -> np.ndarray:
        """Encodes float32 values of shape (n,) as ggml_quantize_chunk does without an importance matrix; uint8.

        n is a multiple of the type's block: no block sees another, so rows need not be told apart.
        """
        block, block_bytes = GGML_QUANT_SIZES[kind]
        blocks, rest = divmod(values.size, block)
        if rest or values.dtype != np.float32 or not values.flags.c_contiguous:
            raise ValueError(f"{kind.name} takes contiguous float32 in blocks of {block}")
        encoded = np.empty(blocks * block_bytes, np.uint8)
        written = self._handle.ggml_quantize_chunk(
            int(kind), values.ctypes.data, encoded.ctypes.data, 0, blocks, block, None
        )
        if written != encoded.nbytes:
            raise RuntimeError(f"ggml wrote {written} bytes of {kind.name}, {encoded.nbytes} were expected")
        return encoded

    def to_float32(self, kind: GGMLQuantizationType, encoded: np.ndarray) -> np.ndarray:
        """Decodes F32, F16 or BF16 bytes (uint8) to float32 values of shape (n,)."""
        if kind == GGMLQuantizationType.F32:
            return encoded.view(np.float32)
        values = np.empty(encoded.nbytes // 2, np.float32)
        getattr(self._handle, _TO_FLOAT32[kind])(encoded.ctypes.data, values.ctypes.data, values.size)
        return values

    def is_valid(self, kind: GGMLQuantizationType, encoded: np.ndarray) -> bool:
        """Whether no scale or value in these blocks is infinite or not a number (the rule of llama-quantize)."""
        return bool(self._handle.ggml_validate_row_data(int(kind), encoded.ctypes.data, encoded.nbytes))


@lru_cache(maxsize=1)
def load_library() -> GgmlLibrary:
    """Raises BadConfiguration when the package is missing or its library cannot be loaded."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise BadConfiguration(
            f"Quantizing needs the package {PACKAGE}: install draftmill[engine].", code="ggml_library.missing"
        )
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = sorted(path for suffix in ("so", "dylib", "pyd") for path in folder.glob(f"{PACKAGE}*.{suffix}"))
    if not found:
        raise BadConfiguration(
            f"{folder} holds no shared library; install {PACKAGE} again.",
            code="ggml_library.missing",
            where=str(folder),
        )
    try:
        handle = ctypes.CDLL(str(found[0]))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(handle, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise BadConfiguration(
            f"{PACKAGE}'s library cannot be used on this {platform.machine()} machine ({error}). "
            "On Linux it needs libgomp.so.1 (Debian's package libgomp1).",
            code="ggml_library.unusable",
            where=str(found[0]),
        ) from error
    return GgmlLibrary(found[0], f"{version(PACKAGE)} (ggml {handle.ggml_version().decode()})", handle)
