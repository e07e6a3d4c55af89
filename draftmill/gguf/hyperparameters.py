"""config.json -> the sizes and settings that a GGUF states, or the reasons why the native converter may not state them.

Keys and their order follow llama.cpp's conversion/base.py (set_gguf_parameters) and conversion/llama.py, read together
with what transformers makes of a config. A setting that would change the model's result and has no place in the GGUF of
its architecture is refused, as is a missing one: no default is invented.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftmill.intake.findings import Findings

if TYPE_CHECKING:
    from gguf import GGUFWriter

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
"""Hugging Face's name -> GGUF's general.architecture."""

MUST_BE_ABSENT = (
    "quantization_config",
    "compression_config",
    "draft_vocab_size",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "text_config",
    "transformer_layer_config",
)
ROPE_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "yarn": (
        ("factor", "original_max_position_embeddings"),
        ("attention_factor", "beta_fast", "beta_slow", "extrapolation_factor"),
    ),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
}
"""Kind of rotary scaling -> the keys it needs, and those it may have."""
_ROPE_COMMON = {"rope_theta", "rope_type", "type"}


@dataclass(frozen=True)
class Hyperparameters:
    """Sizes in elements; `rope` holds rope_type, rope_theta and the scaling's own keys.

    head_dim: width of a head. states_head_dim: whether the GGUF names it (always, but for a qwen2 without the key).
    """

    architecture: str
    blocks: int
    context: int
    embedding: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    states_head_dim: bool
    vocabulary: int
    rms_epsilon: float
    tied: bool
    rope: dict[str, Any]


def read_hyperparameters(config: dict[str, Any]) -> Hyperparameters:
    """Raises Refused with every finding: convert.architecture, config_key, config_setting, rope_type."""
    findings = Findings()
    named = config.get("architectures")
    architecture = ARCHITECTURES.get(named[0]) if isinstance(named, list) and named else None
    if architecture is None:
        findings.add(
            "convert.architecture",
            "config.json:architectures",
            str(named)[:200],
            list(ARCHITECTURES),
            "The native converter does not know this architecture; try --converter stock.",
        )
    _refuse_settings(config, architecture, findings)
    sizes = {key: _size(config, key, findings) for key in _SIZES}
    heads = sizes["num_attention_heads"]
    kv_heads, head_dim = config.get("num_key_value_heads"), config.get("head_dim")
    # The definitions' own meaning of an unset key: as many as query heads, and hidden / heads.
    if not (kv_heads is None and architecture == "llama"):
        kv_heads = _size(config, "num_key_value_heads", findings)
    if not (head_dim is None and architecture in ("llama", "qwen2")):
        head_dim = _size(config, "head_dim", findings)
    epsilon = config.get("rms_norm_eps")
    if not _is_number(epsilon):
        _missing("rms_norm_eps", epsilon, "a number", findings)
    rope = _rope(config, architecture, findings)
    findings.raise_if_any()
    return Hyperparameters(
        architecture=str(architecture),
        blocks=sizes["num_hidden_layers"],
        context=sizes["max_position_embeddings"],
        embedding=sizes["hidden_size"],
        feed_forward=sizes["intermediate_size"],
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=head_dim or sizes["hidden_size"] // heads,
        states_head_dim=architecture != "qwen2" or config.get("head_dim") is not None,
        vocabulary=sizes["vocab_size"],
        rms_epsilon=float(epsilon),  # type: ignore[arg-type]
        tied=config.get("tie_word_embeddings", False) is True,
        rope=rope,
    )


def add_hyperparameters(writer: "GGUFWriter", hp: Hyperparameters, file_type: int) -> None:
    """Writes the keys into `writer`, in the stock converter's order."""
    from gguf import GGML_QUANT_VERSION, RopeScalingType

    writer.add_block_count(hp.blocks)
    writer.add_context_length(hp.context)
    writer.add_embedding_length(hp.embedding)
    writer.add_feed_forward_length(hp.feed_forward)
    writer.add_head_count(hp.heads)
    writer.add_head_count_kv(hp.kv_heads)
    if hp.rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(RopeScalingType(hp.rope["rope_type"]))
        writer.add_rope_scaling_factor(hp.rope["factor"])
    if hp.rope["rope_type"] == "yarn":
        writer.add_rope_scaling_orig_ctx_len(hp.rope["original_max_position_embeddings"])
        for key, add in (
            ("extrapolation_factor", writer.add_rope_scaling_yarn_ext_factor),
            ("attention_factor", writer.add_rope_scaling_yarn_attn_factor),
            ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
            ("beta_slow", writer.add_rope_scaling_yarn_beta_slow),
        ):
            if hp.rope.get(key) is not None:
                add(hp.rope[key])
    writer.add_rope_freq_base(hp.rope["rope_theta"])
    writer.add_layer_norm_rms_eps(hp.rms_epsilon)
    if hp.states_head_dim:
        writer.add_key_length(hp.head_dim)
        writer.add_value_length(hp.head_dim)
    writer.add_file_type(file_type)
    if hp.architecture == "llama":
        writer.add_vocab_size(hp.vocabulary)
        writer.add_rope_dimension_count(hp.head_dim)
    writer.add_quantization_version(GGML_QUANT_VERSION)


_SIZES = (
    "num_hidden_layers",
    "max_position_embeddings",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "vocab_size",
)


def _refuse_settings(config: dict[str, Any], architecture: str | None, findings: Findings) -> None:
    layers = config.get("layer_types")
    wrong = {
        **{key: config[key] for key in MUST_BE_ABSENT if config.get(key) is not None},
        **({"hidden_act": config.get("hidden_act")} if config.get("hidden_act") != "silu" else {}),
        **({"use_sliding_window": True} if config.get("use_sliding_window") else {}),
        **({"layer_types": layers} if layers and set(layers) != {"full_attention"} else {}),
        **({"is_causal": False} if config.get("is_causal") is False else {}),
    }
    if config.get("partial_rotary_factor") not in (None, 1, 1.0):
        wrong["partial_rotary_factor"] = config["partial_rotary_factor"]
    if architecture == "llama" and config.get("vocab_size") == 32016:
        wrong["vocab_size"] = 32016  # CodeLlama: its infill tokens are known to the stock converter only
    for key, value in wrong.items():
        findings.add(
            "convert.config_setting",
            f"config.json:{key}",
            str(value)[:200],
            "silu" if key == "hidden_act" else "not set so",
            "The native converter has no place for this setting in the model's GGUF; try --converter stock.",
        )


def _rope(config: dict[str, Any], architecture: str | None, findings: Findings) -> dict[str, Any]:
    where = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    given = config.get(where) or {}
    if not isinstance(given, dict):
        _missing(where, given, "an object", findings)
        return {}
    rope = {key: value for key, value in given.items() if value is not None}
    rope["rope_type"] = rope.get("rope_type") or rope.pop("type", None) or "default"
    rope.setdefault("rope_theta", config.get("rope_theta"))
    if "original_max_position_embeddings" in config:
        rope.setdefault("original_max_position_embeddings", config["original_max_position_embeddings"])
    kind = rope["rope_type"]
    known = isinstance(kind, str) and kind in ROPE_KEYS and (kind != "llama3" or architecture == "llama")
    if not known:
        findings.add(
            "convert.rope_type",
            f"config.json:{where}.rope_type",
            str(kind)[:80],
            [key for key in ROPE_KEYS if key != "llama3" or architecture == "llama"],
            "The native converter does not know this rotary scaling for the architecture; try --converter stock.",
        )
        return rope
    needed, allowed = ROPE_KEYS[kind]
    for key in ("rope_theta", *needed):
        if not _is_number(rope.get(key)):
            _missing(key if key == "rope_theta" else f"{where}.{key}", rope.get(key), "a number", findings)
    unknown = {key for key in given if given[key] is not None} - {*needed, *allowed, *_ROPE_COMMON}
    if kind == "default":
        unknown -= {"original_max_position_embeddings"}
    for key in sorted(unknown):
        findings.add(
            "convert.config_setting",
            f"config.json:{where}.{key}",
            str(given[key])[:200],
            f"only {[*needed, *allowed]} with {kind}",
            "The native converter does not know what this rotary setting changes; try --converter stock.",
        )
    return rope


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _size(config: dict[str, Any], key: str, findings: Findings) -> int:
    value = config.get(key)
    if type(value) is int and 0 < value < 1 << 32:
        return value
    _missing(key, value, "a whole number above 0", findings)
    return 1


def _missing(key: str, value: Any, expected: str, findings: Findings) -> None:
    findings.add(
        "convert.config_key",
        f"config.json:{key}",
        value if isinstance(value, int | float | None) else str(value)[:80],
        expected,
        "The key is missing or not usable, and no default is invented for it; complete the config at its source.",
    )
