"""What a GGUF must hold, from config.json alone: tensors, parameters and bytes, before any converter ran.

The tensors follow from the models' own definitions (`modeling_llama.py`, `modeling_qwen2.py`, `modeling_qwen3.py` of
transformers) and llama.cpp's names for their parts; nothing here is shared with the converter, so that the two are
evidence for each other. Layout of the file: header, then each tensor's bytes padded to `general.alignment` (ggml
docs/gguf.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from draftmill.outcome import Refusal, Refused

DEFAULT_ALIGNMENT = 32
ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
"""Architecture of config.json -> the GGUF's general.architecture."""

Head = Literal["own", "shared", "copy"]
"""The output head: a tensor of its own, the embedding itself, or a second tensor that must equal the embedding (a
checkpoint that says its embeddings are tied and carries lm_head all the same, which a converter then writes)."""


@dataclass(frozen=True)
class Size:
    """A number of bytes that is printed in both units: MB are 10^6 bytes, MiB 2^20."""

    bytes: int

    def __str__(self) -> str:
        return f"{self.bytes / 1e6:.1f} MB ({self.bytes / 2**20:.1f} MiB)"


@dataclass(frozen=True)
class ExpectedTensor:
    """name: the GGUF's; shape: rows first; source: the checkpoint's name for it, None for a tensor that is computed.

    heads: for a llama attention projection the number of heads whose rotary halves are interleaved, else 0.
    """

    name: str
    shape: tuple[int, ...]
    source: str | None
    heads: int = 0


@dataclass(frozen=True)
class Prediction:
    """tensors: with their types, in no order; parameters: weights of the model, computed tensors not counted;
    data_bytes: all tensors with their padding, without the header."""

    tensors: dict[str, tuple[ExpectedTensor, GGMLQuantizationType]]
    parameters: int
    data_bytes: int


def refuse_config(where: str, measured: Any, expected: Any, sentence: str) -> Refused:
    return Refused(Refusal("check.config", f"config.json:{where}", measured, expected, sentence))


def gguf_architecture(config: dict[str, Any]) -> str:
    """Raises Refused when the architecture is not one whose tensors are known here."""
    names = config.get("architectures") or [None]
    if names[0] not in ARCHITECTURES:
        raise refuse_config("architectures", names, sorted(ARCHITECTURES), "No definition to check this model against.")
    return ARCHITECTURES[names[0]]


def rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings: transformers 5 writes `rope_parameters`, before it `rope_scaling` and `rope_theta`."""
    found = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    found.setdefault("rope_theta", config.get("rope_theta"))
    found["rope_type"] = found.get("rope_type") or found.get("type") or "default"
    return found


def expected_tensors(config: dict[str, Any], head: Head) -> list[ExpectedTensor]:
    """Every tensor of the model's GGUF.

    Raises Refused (check.config) when the configuration lacks a size or names another architecture.
    """
    arch = gguf_architecture(config)
    hidden, ffn, vocab, layers, heads = (
        _natural(config, key)
        for key in ("hidden_size", "intermediate_size", "vocab_size", "num_hidden_layers", "num_attention_heads")
    )
    # The two defaults are the definition's: None stands for "as many as query heads" and "hidden / heads".
    kv_heads = config.get("num_key_value_heads") or heads
    width = config.get("head_dim") or hidden // heads
    interleaved = arch == "llama"
    input_bias = arch == "qwen2" or bool(config.get("attention_bias"))
    output_bias = arch != "qwen2" and bool(config.get("attention_bias"))
    mlp_bias = arch == "llama" and bool(config.get("mlp_bias"))
    # part of the GGUF's name, part of the checkpoint's name, rows, columns, has a bias, heads to interleave
    projections = (
        ("attn_q", "self_attn.q_proj", heads * width, hidden, input_bias, heads if interleaved else 0),
        ("attn_k", "self_attn.k_proj", kv_heads * width, hidden, input_bias, kv_heads if interleaved else 0),
        ("attn_v", "self_attn.v_proj", kv_heads * width, hidden, input_bias, 0),
        ("attn_output", "self_attn.o_proj", hidden, heads * width, output_bias, 0),
        ("ffn_gate", "mlp.gate_proj", ffn, hidden, mlp_bias, 0),
        ("ffn_up", "mlp.up_proj", ffn, hidden, mlp_bias, 0),
        ("ffn_down", "mlp.down_proj", hidden, ffn, mlp_bias, 0),
    )
    norms = [("attn_norm", "input_layernorm", hidden), ("ffn_norm", "post_attention_layernorm", hidden)]
    if arch == "qwen3":
        norms += [("attn_q_norm", "self_attn.q_norm", width), ("attn_k_norm", "self_attn.k_norm", width)]
    embedding = "model.embed_tokens.weight"
    tensors = [
        ExpectedTensor("token_embd.weight", (vocab, hidden), embedding),
        ExpectedTensor("output_norm.weight", (hidden,), "model.norm.weight"),
    ]
    if head != "shared":
        source = "lm_head.weight" if head == "own" else embedding
        tensors.append(ExpectedTensor("output.weight", (vocab, hidden), source))
    if rope_parameters(config)["rope_type"] == "llama3":
        tensors.append(ExpectedTensor("rope_freqs.weight", (width // 2,), None))
    for i in range(layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        for name, source, size in norms:
            tensors.append(ExpectedTensor(f"{ours}{name}.weight", (size,), f"{theirs}{source}.weight"))
        for name, source, rows, columns, bias, turned in projections:
            tensors.append(ExpectedTensor(f"{ours}{name}.weight", (rows, columns), f"{theirs}{source}.weight", turned))
            if bias:
                tensors.append(ExpectedTensor(f"{ours}{name}.bias", (rows,), f"{theirs}{source}.bias", turned))
    return tensors


def _natural(config: dict[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value <= 0:
        raise refuse_config(key, value, "a positive integer", f"The configuration does not give {key}; mend it.")
    return value


def tensor_bytes(shape: tuple[int, ...], kind: GGMLQuantizationType) -> int:
    """Bytes of a tensor without padding. Raises ValueError when a row is not whole blocks of the type."""
    block, size = GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise ValueError(f"rows of {shape[-1]} are not whole blocks of {block} ({kind.name})")
    return prod(shape) // block * size


def padded(size: int, alignment: int = DEFAULT_ALIGNMENT) -> int:
    return -(-size // alignment) * alignment


def predict(
    tensors: Iterable[ExpectedTensor],
    types: Mapping[str, GGMLQuantizationType],
    *,
    alignment: int = DEFAULT_ALIGNMENT,
) -> Prediction:
    """The tensors with the types that a mix gives them by name, and the bytes that follow."""
    typed = {tensor.name: (tensor, types[tensor.name]) for tensor in tensors}
    return Prediction(
        tensors=typed,
        parameters=sum(prod(tensor.shape) for tensor, _ in typed.values() if tensor.source),
        data_bytes=sum(padded(tensor_bytes(tensor.shape, kind), alignment) for tensor, kind in typed.values()),
    )
