"""Tiny random Hugging Face checkpoints of the three dense architectures."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.inputs import qwen3_tokenizer

MODEL_TYPES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
QWEN3_VOCAB = 151936


def config(architecture: str, **changes: Any) -> dict[str, Any]:
    """A config.json of the architecture; every size can be changed by keyword."""
    base: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": MODEL_TYPES[architecture],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": QWEN3_VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "attention_bias": False,
    }
    base.update(changes)
    return {key: value for key, value in base.items() if value is not None}


def tensor_shapes(cfg: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Hugging Face tensor name -> shape."""
    hidden, ffn, head = cfg["hidden_size"], cfg["intermediate_size"], cfg["head_dim"]
    q, kv = cfg["num_attention_heads"] * head, cfg["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (cfg["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not cfg["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (cfg["vocab_size"], hidden)
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes |= {
            p + "input_layernorm.weight": (hidden,),
            p + "post_attention_layernorm.weight": (hidden,),
            p + "self_attn.q_proj.weight": (q, hidden),
            p + "self_attn.k_proj.weight": (kv, hidden),
            p + "self_attn.v_proj.weight": (kv, hidden),
            p + "self_attn.o_proj.weight": (hidden, q),
            p + "mlp.gate_proj.weight": (ffn, hidden),
            p + "mlp.up_proj.weight": (ffn, hidden),
            p + "mlp.down_proj.weight": (hidden, ffn),
        }
        if cfg["model_type"] == "qwen2":
            shapes |= {p + f"self_attn.{r}_proj.bias": (n,) for r, n in (("q", q), ("k", kv), ("v", kv))}
        if cfg["model_type"] == "qwen3":
            shapes |= {p + "self_attn.q_norm.weight": (head,), p + "self_attn.k_norm.weight": (head,)}
    return shapes


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 -> bf16 bits as uint16, nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """uint16 arrays are written as BF16, float16 and float32 as what they are."""
    names = {"uint16": "BF16", "float16": "F16", "float32": "F32"}
    head: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, array in tensors.items():
        head[name] = {
            "dtype": names[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def write_checkpoint(
    folder: Path,
    architecture: str = "Qwen3ForCausalLM",
    *,
    tokenizer: Path | bool | None = True,
    dtype: str = "BF16",
    shards: int = 1,
    seed: int = 0,
    **changes: Any,
) -> dict[str, Any]:
    """Writes config.json, weights and tokenizer files; returns the config.

    tokenizer: True for the real Qwen3 one, a folder to copy from, or None for a weights-only repository.
    dtype: BF16, F16 or F32. shards > 1 also writes model.safetensors.index.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cfg = config(architecture, **changes)
    (folder / "config.json").write_text(json.dumps(cfg, indent=2))
    source = qwen3_tokenizer() if tokenizer is True else tokenizer
    if source:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(source) / name, folder / name)
    rng = np.random.default_rng(seed)
    cast = {"BF16": to_bf16, "F16": lambda x: x.astype(np.float16), "F32": lambda x: x.astype(np.float32)}[dtype]
    tensors = {}
    for name, shape in tensor_shapes(cfg).items():
        gain = 1.0 if name.endswith("norm.weight") else 0.0
        tensors[name] = cast(gain + rng.standard_normal(shape, np.float32) * np.float32(0.05))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return cfg
    names = list(tensors)
    weight_map = {}
    for k in range(shards):
        file = f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        part = names[k * len(names) // shards : (k + 1) * len(names) // shards]
        write_safetensors(folder / file, {n: tensors[n] for n in part})
        weight_map |= dict.fromkeys(part, file)
    total = sum(t.nbytes for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return cfg
