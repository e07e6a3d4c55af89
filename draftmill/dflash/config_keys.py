"""The keys of a draft's config: every name and every place in which a published config or a tool's export has them.

Sources: dflash.md sections 1.1 and 5.1 (z-lab, NVIDIA ModelOpt, vLLM, SGLang), q4nx.md sections 5.2 and 6.2
(FastFlowLM; its `dflash` object is not established, so `dflash.block_size` is read as a key and as an object).
"""

from dataclasses import dataclass

from draftmill.dflash.config_kinds import FLAG, IDS, LAYER_TYPES, POSITIVE, TEXT, Kind, whole

SECTIONS = ("dflash_config", "dflash", "rope_parameters", "rope_scaling")
"""Objects inside config.json that are looked into."""


@dataclass(frozen=True)
class Key:
    """places: dotted, in the order in which they are looked at. assumed: what tools take when the key is absent."""

    name: str
    places: tuple[str, ...]
    kind: Kind
    assumed: str = ""


def _key(name: str, kind: Kind, assumed: str = "", *, aliases: tuple[str, ...] = (), nested: bool = True) -> Key:
    sections = ("", "dflash_config.", "dflash.") if nested else ("", "dflash.")
    return Key(name, tuple(section + each for each in (name, *aliases) for section in sections), kind, assumed)


def _size(name: str, largest: int, assumed: object) -> Key:
    return _key(name, whole(1, largest), f"transformers takes {assumed}, whatever the weights are", nested=False)


SIZES = (
    _size("hidden_size", 1 << 16, 4096),
    _size("intermediate_size", 1 << 20, 22016),
    _size("num_hidden_layers", 256, 32),
    _size("num_attention_heads", 1024, 32),
    _size("num_key_value_heads", 1024, 32),
    _size("head_dim", 4096, 128),
    _size("vocab_size", 1 << 22, 151936),
)

RMS_EPS = _key("rms_norm_eps", POSITIVE, "transformers takes 1e-6, other drafts have 1e-5", aliases=("rms_eps",))
ROPE_THETA = Key(
    "rope_theta",
    ("rope_theta", "rope_parameters.rope_theta", "dflash_config.rope_theta", "dflash.rope_theta"),
    POSITIVE,
    "vLLM takes 1e6 and transformers 1e4; the draft's base is its own and not the target's",
)
BLOCK_SIZE = _key(
    "block_size",
    whole(2, 1024),
    "tools take a block of their own, mostly 16; at another length than it was trained for a draft loses acceptance",
)
MASK_TOKEN_ID = _key(
    "mask_token_id",
    whole(0, (1 << 22) - 1),
    "SGLang looks for a token <|MASK|>, and others took the pad token, which is often the end of text",
)
TARGET_LAYER_IDS = _key(
    "target_layer_ids",
    IDS,
    "z-lab's older code spreads the taps evenly, which is wrong for 14 of 20 published drafts and shows only as low "
    "acceptance",
)
NUM_TARGET_LAYERS = _key("num_target_layers", whole(1, 1024))

LAYER_TYPES_KEY = _key("layer_types", LAYER_TYPES)
SLIDING_WINDOW = _key(
    "sliding_window",
    whole(0, 1 << 24),
    "transformers takes 4096, and z-lab's older code applies no window at all",
    aliases=("swa_window_size",),
)
USE_SLIDING_WINDOW = _key("use_sliding_window", FLAG, aliases=("use_swa",))
IS_CAUSAL = _key("is_causal", FLAG, aliases=("causal",))

INPUT_EMBEDDING_SCALE = _key("input_embedding_scale", POSITIVE, aliases=("embedding_scale",))
OUTPUT_MULTIPLIER = _key("output_multiplier", POSITIVE)
FINAL_LOGIT_SOFTCAPPING = _key("final_logit_softcapping", POSITIVE)
HIDDEN_ACT = _key("hidden_act", TEXT, nested=False)
MAX_POSITION_EMBEDDINGS = _key("max_position_embeddings", whole(1, 1 << 30), nested=False)

SECOND = (
    _key("conv_kernel_size", whole(1, 64)),
    _key("conv_group_size", whole(1, 1 << 16)),
    _key("selector_rank", whole(1, 1 << 16)),
    _key("selector_top_k", whole(1, 1 << 16)),
)
"""The four keys that every generation 2 config has and no generation 1 config. Tools ask for them as well: none has a
default."""

NEUTRAL = frozenset(
    {"architectures", "model_type", "auto_map", "attention_dropout", "tie_word_embeddings", "use_cache"}
    | {"initializer_range", "bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype"}
    | {"transformers_version", "max_window_layers", "_name_or_path", "flm_version", "pretraining_tp"}
)
"""Keys that are read elsewhere, or that change nothing about a forward pass."""
