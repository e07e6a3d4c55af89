"""The C functions of llama.cpp that the child calls, out of the hash-pinned xllamacpp wheel by ctypes.

The wheel is one shared object that exports llama.h. Its structs have no header in the wheel, so they are kept as opaque
bytes and only the fields at the offsets below are touched; the defaults that the library itself returns are compared
with what those offsets should hold before any of them is written, and a mismatch is a `BadConfiguration`. The offsets
are those of include/llama.h at b11549 on a 64-bit machine: llama_model_params starts with two pointers, n_gpu_layers,
split_mode, load_mode, lazy_mode, main_gpu, then four pointers, then the booleans vocab_only, check_tensors,
use_extra_bufts.
"""

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.gguf.ggml_library import PACKAGE, load_library
from draftmill.outcome import BadConfiguration

_N_GPU_LAYERS, _VOCAB_ONLY, _USE_EXTRA_BUFTS = 16, 72, 74
_MODEL_DEFAULTS = struct.pack("<iiii", -1, 1, -1, 1)
_MODEL_FLAGS = bytes((0, 0, 1))
_CONTEXT_DEFAULTS = struct.pack("<IIII", 512, 2048, 512, 1)


class _Opaque(ctypes.Structure):
    """Room for a struct that is passed and returned by value; larger than any of them, which the ABIs allow."""

    _fields_ = (("raw", ctypes.c_uint8 * 512),)


class _Batch(ctypes.Structure):
    """llama_batch: n_tokens, token, embd, pos, n_seq_id, seq_id, logits."""

    _fields_ = (("n_tokens", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6))


@cache
def _load() -> Any:
    library = load_library()
    lib = ctypes.CDLL(str(library.path))
    pointer, i32, boolean = ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "llama_backend_init": (None, []),
        "llama_model_default_params": (_Opaque, []),
        "llama_context_default_params": (_Opaque, []),
        "llama_model_load_from_file": (pointer, [ctypes.c_char_p, _Opaque]),
        "llama_model_get_vocab": (pointer, [pointer]),
        "llama_vocab_n_tokens": (i32, [pointer]),
        "llama_tokenize": (i32, [pointer, ctypes.c_char_p, i32, pointer, i32, boolean, boolean]),
        "llama_token_to_piece": (i32, [pointer, i32, ctypes.c_char_p, i32, i32, boolean]),
        "llama_init_from_model": (pointer, [pointer, _Opaque]),
        "llama_set_n_threads": (None, [pointer, i32, i32]),
        "llama_batch_get_one": (_Batch, [pointer, i32]),
        "llama_decode": (i32, [pointer, _Batch]),
        "llama_get_logits_ith": (pointer, [pointer, i32]),
        "llama_free": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    model, context = bytes(lib.llama_model_default_params().raw), bytes(lib.llama_context_default_params().raw)
    known = (
        model[_N_GPU_LAYERS : _N_GPU_LAYERS + 16] == _MODEL_DEFAULTS
        and model[_VOCAB_ONLY : _VOCAB_ONLY + 3] == _MODEL_FLAGS
        and context[:16] == _CONTEXT_DEFAULTS
    )
    if not known:
        raise BadConfiguration(
            f"{PACKAGE} {library.version} has another struct layout than the pinned one; "
            "install the version of requirements/",
            code="engine.layout",
        )
    lib.llama_backend_init()
    return lib


class LoadFailed(Exception):
    """llama.cpp did not load the file; its reason is on standard error."""


class Model:
    """A GGUF loaded by llama.cpp on the CPU, the file mapped. Raises LoadFailed."""

    def __init__(self, path: Path, *, vocab_only: bool) -> None:
        self._lib = _load()
        parameters = self._lib.llama_model_default_params()
        struct.pack_into("<i", parameters.raw, _N_GPU_LAYERS, 0)
        parameters.raw[_VOCAB_ONLY] = vocab_only
        # Repacked copies of the weights are faster to run and slower to make: not worth it for a few tokens.
        parameters.raw[_USE_EXTRA_BUFTS] = 0
        self._model = self._lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise LoadFailed
        self._vocab = self._lib.llama_model_get_vocab(self._model)
        self.n_tokens: int = self._lib.llama_vocab_n_tokens(self._vocab)

    def tokenize(self, text: str, *, add_special: bool) -> list[int]:
        """Token ids of `text`; strings of special tokens in it become those tokens."""
        raw = text.encode()
        ids = (ctypes.c_int32 * (len(raw) + 8))()
        count = self._lib.llama_tokenize(self._vocab, raw, len(raw), ids, len(ids), add_special, True)
        if count < 0:
            raise RuntimeError(f"llama_tokenize asks for {-count} tokens for {len(raw)} bytes")
        return list(ids[:count])

    def piece(self, token: int) -> bytes:
        """The bytes that the token stands for, special tokens written out."""
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            count = self._lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, True)
            if count >= 0:
                return buffer.raw[:count]
            size = -count

    def generate(self, prompt: list[int], count: int, threads: int) -> tuple[list[int], bool]:
        """(`count` greedy token ids after `prompt`, whether every logit was finite), in a context of its own."""
        context = self._lib.llama_init_from_model(self._model, self._lib.llama_context_default_params())
        if not context:
            raise RuntimeError("llama_init_from_model made no context")
        try:
            self._lib.llama_set_n_threads(context, threads, threads)
            ids: list[int] = []
            finite, step = True, prompt
            while len(ids) < count:
                array = (ctypes.c_int32 * len(step))(*step)
                status = self._lib.llama_decode(context, self._lib.llama_batch_get_one(array, len(step)))
                if status != 0:
                    raise RuntimeError(f"llama_decode returned {status}")
                address = self._lib.llama_get_logits_ith(context, -1)
                logits = np.ctypeslib.as_array(
                    ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), shape=(self.n_tokens,)
                )
                finite = finite and bool(np.isfinite(logits).all())
                step = [int(logits.argmax())]
                ids += step
            return ids, finite
        finally:
            self._lib.llama_free(context)
