"""What has to hold between the sizes of a draft for its forward to exist."""

from collections.abc import Callable
from typing import Any

from draftmill.dflash.config_places import Places
from draftmill.dflash.remark import Remark


def check_sizes(places: Places, value: Callable[[str], Any]) -> None:
    """value: name of a key -> its value, None where it has none.

    Codes: dflash.heads_indivisible, head_dim_odd, group_indivisible, mask_outside_vocabulary, top_k_above_vocabulary.
    """
    heads, kv_heads, vocab = value("num_attention_heads"), value("num_key_value_heads"), value("vocab_size")
    if heads and kv_heads and heads % kv_heads:
        places.refuse(
            "heads_indivisible",
            "num_key_value_heads",
            kv_heads,
            f"a divisor of {heads} heads",
            "Query heads cannot share key and value heads evenly; take config.json from the draft's publisher.",
        )
    if value("head_dim") and value("head_dim") % 2:
        places.refuse(
            "head_dim_odd",
            "head_dim",
            value("head_dim"),
            "an even number",
            "Halves of a head are rotated against each other, so a head has an even width; correct head_dim.",
        )
    if vocab and value("mask_token_id") is not None and value("mask_token_id") >= vocab:
        places.refuse(
            "mask_outside_vocabulary",
            "mask_token_id",
            value("mask_token_id"),
            f"below vocab_size {vocab}",
            "The mask's embedding is a row of the target's table, which has no such row; take config.json from the "
            "draft's publisher.",
        )
    hidden, group, top_k = value("hidden_size"), value("conv_group_size"), value("selector_top_k")
    if hidden and group and hidden % group:
        places.refuse(
            "group_indivisible",
            "conv_group_size",
            group,
            f"a divisor of hidden_size {hidden}",
            "The convolution's groups do not fill the hidden size; take config.json from the draft's publisher.",
        )
    if vocab and top_k and top_k > vocab:
        places.refuse(
            "top_k_above_vocabulary",
            "selector_top_k",
            top_k,
            f"at most vocab_size {vocab}",
            "The selector cannot look at more candidates than there are tokens; correct selector_top_k.",
        )


def mask_remarks(places: Places, mask: int | None) -> list[Remark]:
    """Trainers that are told no mask id take the pad id, which is often the end of the text (NeMo #2461).

    It is no refusal: a draft that was trained so is right so. Code: dflash.mask_is_pad.
    """
    same = [name for name in ("pad_token_id", "eos_token_id") if mask is not None and places.raw(name) == mask]
    sentence = "The mask id is this token's: tools that are told none take it in silence, and a draft that was trained "
    sentence += "with another mask then drafts badly. Run the draft on its target (validate --run)."
    return [Remark("dflash.mask_is_pad", name, sentence) for name in same]
