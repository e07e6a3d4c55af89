"""The pair rule asked of llama.cpp's own vocabularies: `python -m tests.tokenizers.runtime_rule TARGET DRAFT ...`.

A process of its own, since the library aborts on what it does not like. Prints one JSON list: for each pair the name of
the first rule that fails, in the order of common_speculative_are_compatible, or null.
"""

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

from draftmill.engine.library import Model, _load


def first_failure(lib: Any, target: Any, draft: Any) -> str | None:
    for name in ("type", "add_bos", "bos", "add_eos", "eos", "n_tokens"):
        ask = getattr(lib, "llama_vocab_get_" + name if name.startswith("add") else "llama_vocab_" + name)
        ask.restype, ask.argtypes = ctypes.c_int32, [ctypes.c_void_p]
    lib.llama_vocab_get_add_bos.restype = lib.llama_vocab_get_add_eos.restype = ctypes.c_bool
    lib.llama_vocab_get_text.restype = ctypes.c_char_p
    lib.llama_vocab_get_text.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    if lib.llama_vocab_type(target) != lib.llama_vocab_type(draft):
        return "pair_kind"
    for role in ("bos", "eos"):
        adds, id_of = getattr(lib, f"llama_vocab_get_add_{role}"), getattr(lib, f"llama_vocab_{role}")
        if adds(target) != adds(draft):
            return f"pair_add_{role}"
        if adds(target) and id_of(target) != id_of(draft):
            return f"pair_{role}"
    sizes = [lib.llama_vocab_n_tokens(vocabulary) for vocabulary in (target, draft)]
    if abs(sizes[0] - sizes[1]) > 128:
        return "pair_size"
    text = lib.llama_vocab_get_text
    return "pair_text" if any(text(target, i) != text(draft, i) for i in range(5, min(sizes))) else None


def main() -> None:
    paths = [Path(name) for name in sys.argv[1:]]
    models = [Model(path, vocab_only=True) for path in paths]
    lib = _load()
    pairs = zip(models[::2], models[1::2], strict=True)
    print(json.dumps([first_failure(lib, target._vocab, draft._vocab) for target, draft in pairs]))


if __name__ == "__main__":
    main()
