"""Real target and draft pairs as GGUF files, made from SmolLM2-135M; each is built on first use and kept.

They lie below .mill/inputs/pairs/, 1.8 GB: the wide pair in a folder of its own, the others in one named after the code
that makes them. Folders of older code are removed once nobody can be using them.

wide().target     SmolLM2 with every MLP eight times as wide, F16, 1.4 GB
wide().draft      SmolLM2 in Q8_0: nearly all is accepted, faster
coarse_draft()    SmolLM2 as llama-quantize's Q2_K has it, Q3_K and, for rows of 576, IQ4_NL: the middle
pruned_draft()    SmolLM2 in Q8_0 without its layers 1 to 5: hardly any is accepted, slower
qwen3_draft()     random weights with Qwen3's vocabulary: the server drops it

small() and small_wrong_draft() are of two layers and the first 4096 tokens of the vocabulary. They repeat themselves
rather than speak, at about 100 tokens a second, with nearly all drafts accepted or hardly any.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType

from draftmill.digest import sha256_file, sha256_json
from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.ggml_library import load_library
from draftmill.gguf.header import map_tensor, read_header
from draftmill.gguf.metadata import Provenance
from flows.demo import edited_gguf, wide_target
from flows.demo.edited_gguf import Made, encode, values, write_edited
from tests.support.checkpoints import write_checkpoint
from tests.support.inputs import INPUTS, smollm2_gguf

_T = GGMLQuantizationType
KEPT, WIDE = INPUTS / "pairs", "wide"
UNUSED_S = 3600
SMALL_ROWS = 4096


def wide() -> wide_target.Pair:
    """The demonstration's pair."""
    return wide_target.build_pair(smollm2_gguf(), KEPT / WIDE)


def coarse_draft() -> Path:
    return _kept("coarse", _write_coarse)


def pruned_draft() -> Path:
    return _kept("pruned", lambda out: _write_selected(wide().draft, out, [0, *range(6, 30)]))


def qwen3_draft() -> Path:
    return _kept("qwen3", _write_qwen3)


def small() -> wide_target.Pair:
    return wide_target.Pair(
        _kept("small-target", lambda out: wide_target.write_wide(_small([0, 1]), out, _T.F16)),
        _kept("small-draft", lambda out: wide_target.write_plain(_small([0, 1]), out, _T.Q8_0)),
    )


def small_wrong_draft() -> Path:
    return _small([20, 21])


def _folder() -> Path:
    modules = [Path(str(module.__file__)) for module in (edited_gguf, wide_target)]
    folder = KEPT / sha256_json([sha256_file(path) for path in [Path(__file__), *modules]])[:16]
    if not folder.is_dir():
        for old in KEPT.glob("*"):
            if old.name != WIDE and time.time() - old.stat().st_mtime > UNUSED_S:
                shutil.rmtree(old)
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def _kept(name: str, write: Callable[[Path], None]) -> Path:
    """The file; `write` gets a path to make it at, whole or not at all."""
    path = _folder() / f"{name}.gguf"
    if not path.exists():
        write(path)
    return path


def _small(layers: Sequence[int]) -> Path:
    name = f"small-layers-{'-'.join(map(str, layers))}"
    return _kept(name, lambda out: _write_selected(smollm2_gguf(), out, layers, SMALL_ROWS))


def _write_selected(source: Path, out: Path, layers: Sequence[int], rows: int | None = None) -> None:
    """Some of the layers, and the first `rows` of the vocabulary."""
    header = read_header(source)
    tokens = header.fields["tokenizer.ggml.tokens"][:rows]
    known = set(tokens)
    changes = {
        "llama.block_count": len(layers),
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": header.fields["tokenizer.ggml.token_type"][: len(tokens)],
        "tokenizer.ggml.merges": [m for m in header.fields["tokenizer.ggml.merges"] if m.replace(" ", "") in known],
    }
    made = []
    for name, tensor in header.tensors.items():
        head, *rest = name.split(".", 2)
        shape = (len(tokens), *tensor.shape[1:]) if name == "token_embd.weight" else tensor.shape
        nbytes = tensor.nbytes // tensor.shape[0] * shape[0]
        if head == "blk" and int(rest[0]) not in layers:
            continue
        new_name = f"blk.{layers.index(int(rest[0]))}.{rest[1]}" if head == "blk" else name
        made.append(
            Made(new_name, shape, tensor.type, lambda t=tensor, n=nbytes: np.asarray(map_tensor(source, t))[:n])
        )
    write_edited(header, out, made, changes)


def _write_coarse(out: Path) -> None:
    source = smollm2_gguf()
    header, library = read_header(source), load_library()

    def made(name: str, shape: tuple[int, ...]) -> Made:
        if len(shape) == 1 or name == "token_embd.weight":
            kind = _T.F32 if len(shape) == 1 else _T.Q8_0
            return Made(name, shape, kind, lambda: encode(values(source, header, name), kind))
        kind = _T.IQ4_NL if shape[-1] % 256 else _T.Q3_K
        return Made(name, shape, kind, lambda: library.quantize(kind, values(source, header, name).ravel()))

    write_edited(header, out, [made(name, tensor.shape) for name, tensor in header.tensors.items()], {})


def _write_qwen3(out: Path) -> None:
    folder = out.with_suffix(".checkpoint")
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1, "num_key_value_heads": 1}
    write_checkpoint(folder, "Qwen3ForCausalLM", num_hidden_layers=1, tie_word_embeddings=True, **sizes)
    convert_native(folder, folder, out, outtype="f16", provenance=Provenance(name="qwen3-random"))
    shutil.rmtree(folder)
