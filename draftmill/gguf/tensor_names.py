"""Checkpoint tensors -> GGUF tensors of the three dense architectures: names, types, whose rotary halves interleave.

Names come from the `gguf` package's own map. Types follow llama.cpp's conversion/base.py (prepare_tensors): what has
one dimension stays F32, the rest takes the output type. Order is the stock converter's: computed tensors first, then
the checkpoint's (see `checkpoint`).
"""

import math
import re
from dataclasses import dataclass

import numpy as np

from draftmill.gguf.checkpoint import SourceTensor
from draftmill.gguf.hyperparameters import Hyperparameters
from draftmill.intake.findings import Findings

Shapes = dict[str, tuple[int, ...]]

_IGNORED = (".attention.masked_bias", ".attention.bias", ".rotary_emb.inv_freq")
_LAYER = re.compile(r"(model\.layers\.)(\d+)(\..+)")


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor of the GGUF. name: GGUF's; kind: F32, F16 or BF16; shape: rows first.

    source: where it comes from, or None for a tensor in `values`. heads: above 0, the rows are attention heads whose
    two rotary halves the GGUF keeps interleaved.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    source: SourceTensor | None = None
    values: np.ndarray | None = None
    heads: int = 0


def plan_tensors(checkpoint: list[SourceTensor], hp: Hyperparameters, kind: str) -> list[PlannedTensor]:
    """The GGUF's tensors, in their order, matrices in `kind`.

    Raises Refused with every finding: convert.tensor_unknown, convert.tensor_missing, convert.tensor_shape.
    """
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

    findings = Findings()
    architecture = next(arch for arch in MODEL_ARCH if MODEL_ARCH_NAMES.get(arch) == hp.architecture)
    names = get_tensor_name_map(architecture, hp.blocks)
    required, optional = _expected_shapes(hp)
    planned = []
    if hp.rope["rope_type"] == "llama3":
        factors = llama3_factors(hp)
        planned.append(PlannedTensor("rope_freqs.weight", "F32", factors.shape, values=factors))
    present = set()
    for tensor in checkpoint:
        if tensor.name.endswith(_IGNORED):
            continue
        expected = required.get(tensor.name) or optional.get(tensor.name)
        name = names.get_name(tensor.name, try_suffixes=(".weight", ".bias"))
        if expected is None or name is None:
            findings.add(
                "convert.tensor_unknown",
                f"{tensor.file.name}:{tensor.name}",
                list(tensor.shape),
                f"a tensor of {hp.architecture} with {hp.blocks} layers",
                "The model has a part that this architecture does not, and dropping it would change the model; "
                "check config.json, or try --converter stock.",
            )
            continue
        present.add(tensor.name)
        if tensor.shape != expected:
            findings.add(
                "convert.tensor_shape",
                f"{tensor.file.name}:{tensor.name}",
                list(tensor.shape),
                list(expected),
                "The tensor's shape is not what config.json says; config and weights are of different models.",
            )
        heads = {"q_proj": hp.heads, "k_proj": hp.kv_heads}.get(tensor.name.split(".")[-2], 0)
        planned.append(
            PlannedTensor(
                name,
                kind if len(expected) > 1 else "F32",
                tensor.shape,
                source=tensor,
                heads=heads if hp.architecture == "llama" else 0,
            )
        )
    for missing in sorted(required.keys() - present, key=_layer_order):
        findings.add(
            "convert.tensor_missing",
            missing,
            "absent",
            list(required[missing]),
            "A tensor that config.json calls for is in no file; take the whole model from its repository again.",
        )
    findings.raise_if_any()
    return planned


def _expected_shapes(hp: Hyperparameters) -> tuple[Shapes, Shapes]:
    """(needed, allowed besides) Hugging Face tensor name -> shape."""
    q, kv, hidden, ffn = hp.heads * hp.head_dim, hp.kv_heads * hp.head_dim, hp.embedding, hp.feed_forward
    projections: Shapes = {
        "self_attn.q_proj": (q, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, q),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }
    biased = list(projections)[:3] if hp.architecture == "qwen2" else list(projections)
    biases: Shapes = {f"{part}.bias": projections[part][:1] for part in biased}
    layer = {f"{part}.weight": shape for part, shape in projections.items()}
    layer |= {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}
    if hp.architecture == "qwen3":
        layer |= {"self_attn.q_norm.weight": (hp.head_dim,), "self_attn.k_norm.weight": (hp.head_dim,)}
    if hp.architecture == "qwen2":
        layer |= biases
    allowed: Shapes = biases if hp.architecture == "llama" else {}

    needed: Shapes = {"model.embed_tokens.weight": (hp.vocabulary, hidden), "model.norm.weight": (hidden,)}
    head: Shapes = {"lm_head.weight": (hp.vocabulary, hidden)}
    for block in range(hp.blocks):
        needed |= {f"model.layers.{block}.{part}": shape for part, shape in layer.items()}
    optional = {f"model.layers.{b}.{part}": shape for b in range(hp.blocks) for part, shape in allowed.items()}
    return (needed, optional | head) if hp.tied else (needed | head, optional)


def llama3_factors(hp: Hyperparameters) -> np.ndarray:
    """By how much Llama 3's scaling divides each rotary frequency: float32, shape (head_dim / 2,).

    Source: llama.cpp's conversion/llama.py (generate_extra_tensors), after transformers' modeling_rope_utils.py.
    To give torch's bits, a quotient is taken as torch takes it, reciprocal first. Its power is not always the nearest
    float, so that for a head of 96 a factor may differ from the stock one in its last two bits.
    """
    rope, one = hp.rope, np.float32(1)
    low, high = np.float32(rope["low_freq_factor"]), np.float32(rope["high_freq_factor"])
    trained, factor = rope["original_max_position_embeddings"], np.float32(rope["factor"])
    exponents = np.arange(0, hp.head_dim, 2, dtype=np.float32) / np.float32(hp.head_dim)
    frequencies = one / np.power(float(rope["rope_theta"]), exponents.astype(np.float64)).astype(np.float32)
    factors = []
    for wavelength in (one / frequencies) * np.float32(2 * math.pi):
        if wavelength < trained / rope["high_freq_factor"]:
            factors.append(one)
        elif wavelength > trained / rope["low_freq_factor"]:
            factors.append(factor)
        else:
            smooth = ((one / wavelength) * np.float32(trained) - low) / (high - low)
            factors.append(one / ((one - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def _layer_order(name: str) -> tuple[str, int, str]:
    match = _LAYER.fullmatch(name)
    return (match[1], int(match[2]), match[3]) if match else (name, 0, "")
