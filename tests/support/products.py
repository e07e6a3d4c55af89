"""Finished GGUF files of tiny checkpoints, written without the mill's converter, to be spoiled one thing at a time."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter
from gguf.quants import quantize
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from draftmill.gguf.tokenizer_corpus import TEXTS
from tests.support.checkpoints import write_checkpoint

VOCAB = 1024
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>"]
PLAIN = ["<tool_call>", "<think>"]
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2's tokenizer cuts text before merging; llama.cpp knows it as "qwen2"."""

NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def write_tokenizer(folder: Path) -> Path:
    """A byte-level BPE of Qwen2's kind, trained on the corpus itself: 900 pieces and six added tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(list(TEXTS.values()), trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in PLAIN])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    side = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "add_bos_token": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(side))
    return folder


@dataclass
class Product:
    """What goes into a GGUF: `keys` as (writer method, value), `tensors` as name -> (float32 array, type)."""

    arch: str
    keys: dict[str, Any]
    tensors: dict[str, tuple[np.ndarray, Type]]
    raw: dict[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    """Tensor name -> what is done to its encoded bytes."""

    def write(self, path: Path) -> Path:
        writer = GGUFWriter(path, self.arch)
        for key, value in self.keys.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            else:
                writer.add_array(key, value)
        for name, (values, kind) in self.tensors.items():
            encoded = quantize(values, kind) if kind != Type.F32 else values
            writer.add_tensor(name, self.raw.get(name, lambda x: x)(encoded), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def interleave(values: np.ndarray, heads: int) -> np.ndarray:
    """Rotary halves of each head -> pairs, row by row as the definition of the permutation says."""
    head = len(values) // heads
    order = [h * head + half * head // 2 + j for h in range(heads) for j in range(head // 2) for half in (0, 1)]
    return values[order]


@dataclass(frozen=True)
class Made:
    """The folders and the product that a check is given."""

    model: Path
    tokenizer: Path
    config: dict[str, Any]
    product: Product


def make(folder: Path, tokenizer: Path, architecture: str, kind: Type = Type.Q8_0, **changes: Any) -> Made:
    """A tiny random checkpoint of 2 layers (hidden 64, feed-forward 128) and the product that is right for it."""
    sizes: dict[str, Any] = {
        "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": VOCAB, "bos_token_id": None, "eos_token_id": None,
    }  # fmt: skip
    cfg = write_checkpoint(folder, architecture, tokenizer=None, dtype="F32", **sizes | changes)
    weights = _read_float32(folder / "model.safetensors")
    heads = {"q_proj": cfg["num_attention_heads"], "k_proj": cfg["num_key_value_heads"]}
    tensors: dict[str, tuple[np.ndarray, Type]] = {}
    for name, values in weights.items():
        part, suffix = name.removeprefix("model.").rsplit(".", 1)
        if part.startswith("layers."):
            _, layer, rest = part.split(".", 2)
            ours = f"blk.{layer}.{NAMES[rest]}"
        else:
            ours = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[part]
        turns = heads.get(part.rsplit(".", 1)[-1]) if cfg["model_type"] == "llama" else None
        stored = interleave(values, turns) if turns else values
        tensors[f"{ours}.{suffix}"] = (stored, kind if values.ndim == 2 else Type.F32)
    return Made(folder, tokenizer, cfg, Product(cfg["model_type"], _keys(cfg, tokenizer, kind), tensors))


def _read_float32(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8 : 8 + length])
    head.pop("__metadata__")
    body = raw[8 + length :]
    return {n: np.frombuffer(body[slice(*e["data_offsets"])], "<f4").reshape(e["shape"]) for n, e in head.items()}


def _keys(cfg: dict[str, Any], tokenizer: Path, kind: Type) -> dict[str, Any]:
    document = json.loads((tokenizer / "tokenizer.json").read_text())
    texts = {token: text for text, token in document["model"]["vocab"].items()}
    types = dict.fromkeys(texts, 1)
    for added in document["added_tokens"]:
        texts[added["id"]] = added["content"]
        types[added["id"]] = 3 if added["special"] else 4
    ids = {text: token for token, text in texts.items()}
    rows = range(cfg["vocab_size"])
    merges = document["model"]["merges"]
    arch = cfg["model_type"]
    return {
        "general.file_type": {Type.Q8_0: 7, Type.F16: 1, Type.BF16: 32, Type.Q4_0: 2}[kind],
        f"{arch}.block_count": cfg["num_hidden_layers"],
        f"{arch}.context_length": cfg["max_position_embeddings"],
        f"{arch}.embedding_length": cfg["hidden_size"],
        f"{arch}.feed_forward_length": cfg["intermediate_size"],
        f"{arch}.attention.head_count": cfg["num_attention_heads"],
        f"{arch}.attention.head_count_kv": cfg["num_key_value_heads"],
        f"{arch}.attention.key_length": cfg["head_dim"],
        f"{arch}.attention.value_length": cfg["head_dim"],
        f"{arch}.rope.dimension_count": cfg["head_dim"],
        f"{arch}.attention.layer_norm_rms_epsilon": float(cfg["rms_norm_eps"]),
        f"{arch}.rope.freq_base": float(cfg["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [texts.get(i, f"[PAD{i}]") for i in rows],
        "tokenizer.ggml.token_type": [types.get(i, 5) for i in rows],
        "tokenizer.ggml.merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.padding_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.add_bos_token": False,
    }
