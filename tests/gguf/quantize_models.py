"""Tiny random GGUF models that llama-quantize loads, and the real SmolLM2 at full width, by gguf's own writer."""

from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType as Type

from tests.support.checkpoints import to_bf16
from tests.support.inputs import smollm2_gguf

BYTE_TOKENS = [chr(c) for c in (*range(33, 127), *range(161, 173), *range(174, 256))]
FILE_TYPES = {"F16": 1, "F32": 0, "BF16": 32}


def write_model(
    path: Path,
    architecture: str = "qwen3",
    *,
    hidden: int = 256,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head: int = 64,
    ffn: int = 512,
    vocab: int = 300,
    tied: bool = False,
    dtype: str = "F16",
    alignment: int | None = None,
    replace: dict[str, np.ndarray] | None = None,
) -> None:
    """Weights are normal, 0.05 wide. `replace` gives a tensor's float32 values."""
    writer = gguf.GGUFWriter(path, architecture)
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("tiny")
    writer.add_file_type(FILE_TYPES[dtype])
    writer.add_context_length(512)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list((BYTE_TOKENS + [f"t{i}" for i in range(vocab)])[:vocab])
    writer.add_token_types([1] * vocab)
    writer.add_token_merges(["a b", "c d"])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(1)
    writer.add_quantization_version(2)
    rng = np.random.default_rng(0)
    for name, shape in shapes(architecture, hidden, layers, heads, kv_heads, head, ffn, vocab, tied).items():
        values = np.float32(name.endswith("norm.weight")) + rng.standard_normal(shape, np.float32) * np.float32(0.05)
        _add(writer, name, (replace or {}).get(name, values), dtype)
    _write(writer)


def shapes(
    architecture: str, hidden: int, layers: int, heads: int, kv_heads: int, head: int, ffn: int, vocab: int, tied: bool
) -> dict[str, tuple[int, ...]]:
    """GGUF name -> shape, rows first."""
    q, kv = heads * head, kv_heads * head
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    if not tied:
        found["output.weight"] = (vocab, hidden)
    for i in range(layers):
        block = {
            "attn_norm.weight": (hidden,),
            "ffn_norm.weight": (hidden,),
            "attn_q.weight": (q, hidden),
            "attn_k.weight": (kv, hidden),
            "attn_v.weight": (kv, hidden),
            "attn_output.weight": (hidden, q),
            "ffn_gate.weight": (ffn, hidden),
            "ffn_up.weight": (ffn, hidden),
            "ffn_down.weight": (hidden, ffn),
        }
        if architecture == "qwen2":
            block |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if architecture == "qwen3":
            block |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        found |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    return found


def write_smollm2(path: Path) -> None:
    """SmolLM2-135M-Instruct from its Q4_1 package, as an F16 GGUF with the same keys."""
    reader = gguf.GGUFReader(smollm2_gguf())
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(key, 1 if key == "general.file_type" else field.contents(), kind, inner)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        _add(writer, tensor.name, values, "F16")
    _write(writer)


def _add(writer: gguf.GGUFWriter, name: str, values: np.ndarray, dtype: str) -> None:
    if values.ndim == 1 or dtype == "F32":
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    elif dtype == "F16":
        writer.add_tensor(name, values.astype(np.float16))
    else:
        raw = to_bf16(values).view(np.uint8)
        writer.add_tensor(name, raw, raw_shape=raw.shape, raw_dtype=Type.BF16)


def _write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
