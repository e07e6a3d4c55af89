"""Keys that change what a draft computes and that no part of the mill computes: refused by name, unless they say the
ordinary thing. Sources: dflash.md sections 2, 3.3 and 7 (vendor extensions), 8 (what leaks from targets)."""

from collections.abc import Callable
from typing import Any

from draftmill.dflash.config_places import Places
from draftmill.dflash.remark import Remark

_Ordinary = Callable[[Any], bool]


def _is(*values: Any) -> _Ordinary:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _same(size: int | None) -> _Ordinary:
    """As another key says; without that one there is nothing to differ from."""
    return _is(size) if size is not None else lambda value: True


_NO: _Ordinary = _is(False)
_YES: _Ordinary = _is(True)
_NEVER: _Ordinary = _is()
_VOCABULARY = "it predicts ids of its own vocabulary, which have to be mapped"
_WEIGHTS = "its weights are not a DFlash draft's"

UNSUPPORTED: dict[str, tuple[_Ordinary, str]] = {
    "d2t": (_NEVER, _VOCABULARY),
    "t2d": (_NEVER, _VOCABULARY),
    "has_own_embed_tokens": (_NO, "it embeds ids with its own table instead of the target's"),
    "has_own_embedding": (_NO, "it embeds ids with its own table instead of the target's"),
    "mask_embedding": (_NO, "the mask row is a tensor instead of the target's embedding"),
    "sample_from_anchor": (_NO, "the anchor row predicts as well, so every draft moves by one row"),
    "attention_sink_bias": (_NO, "attention has sinks"),
    "add_attention_sink_bias": (_NO, "attention has sinks"),
    "add_swa_attention_sink_bias": (_NO, "attention has sinks"),
    "attention_value_scale": (_is(1, 1.0), "what attention gives is scaled"),
    "aux_hidden_norms": (_NO, "taps are normed one by one before fc"),
    "attention_bias": (_NO, "projections have biases"),
    "mlp_bias": (_NO, "projections have biases"),
    "is_neox_style": (_YES, "heads are rotated by pairs and not by halves"),
    "rope_is_neox_style": (_YES, "heads are rotated by pairs and not by halves"),
    "rope_interleave": (_NO, "heads are rotated by pairs and not by halves"),
    "partial_rotary_factor": (_is(1, 1.0), "only a part of each head is rotated; such keys leak in from targets"),
    "mrope_section": (_NEVER, "positions have several axes; such keys leak in from targets"),
    "mrope_interleaved": (_NO, "positions have several axes; such keys leak in from targets"),
    "quantization_config": (_NEVER, "its weights are quantised already; take the BF16 checkpoint"),
    "compression_config": (_NEVER, "its weights are quantised already; take the BF16 checkpoint"),
    "num_experts": (_is(0), _WEIGHTS),
    "num_local_experts": (_is(0), _WEIGHTS),
    "n_routed_experts": (_is(0), _WEIGHTS),
    "transformer_layer_config": (_NEVER, "it is in speculators' form; convert it to z-lab's form first"),
    "aux_hidden_state_layer_ids": (_NEVER, "the ids are stored as L+1; state target_layer_ids, each one less"),
    "target_layers": (_NEVER, "the ids are stored as L+1, as in GGUF; state target_layer_ids, each one less"),
}
"""Key -> whether a value says the ordinary thing, and what it would change otherwise."""

_SECTIONS = ("", "dflash_config.", "dflash.", "rope_parameters.", "rope_scaling.")


def check_unsupported(
    places: Places, vendor: bool, hidden_size: int | None, vocab_size: int | None, remarks: list[Remark]
) -> None:
    """Code: dflash.unsupported_key. In a FastFlowLM package `has_own_lm_head` is a remark: its container has no head,
    which the exact set of tensors proves."""
    table = UNSUPPORTED | {
        "draft_vocab_size": (_same(vocab_size), _VOCABULARY),
        "target_hidden_size": (_same(hidden_size), "the taps are of another width than the draft"),
        "has_own_lm_head": (_NO, "it scores with its own head instead of the target's"),
    }
    for name, (ordinary, change) in table.items():
        for section in _SECTIONS:
            place = section + name
            value = places.raw(place)
            if value is None or ordinary(value):
                continue
            if name == "has_own_lm_head" and vendor and value is True:
                remarks.append(
                    Remark(
                        "dflash.own_head_stated",
                        place,
                        "The config says that the draft has its own head, and a FastFlowLM container has none: the "
                        "target's head is used.",
                    )
                )
                continue
            places.refuse(
                "unsupported_key",
                place,
                value,
                "absent, or the ordinary value",
                f"{name} changes the draft: {change}. Nothing here computes that, so it cannot be packed or proven.",
            )
    act = places.raw("hidden_act")
    if act is not None and act != "silu":
        places.refuse(
            "unsupported_key", "hidden_act", act, "silu", "A DFlash draft's MLP is gated by SiLU; this one is another."
        )
