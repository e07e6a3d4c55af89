"""A `DraftConfig` -> the metadata keys of a GGUF draft, as llama.cpp's converter writes them, or why it cannot be said.

Source: conversion/base.py (TextModel.set_gguf_parameters) and conversion/qwen.py (DFlashModel). Two things differ on
purpose. The converter drops a window whose config does not say `use_sliding_window` or `use_swa`, which leaves the
draft another one: here a window is always carried. And it takes block 16 where none is stated, which no config here is.
"""

from typing import TYPE_CHECKING

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.gguf_form import keys
from draftmill.dflash.gguf_form.config_reading import CAUSAL_FULL_LAYERS
from draftmill.dflash.remark import Remark
from draftmill.dflash.visibility import DEFAULT
from draftmill.intake.findings import Findings

if TYPE_CHECKING:
    from gguf import GGUFWriter

_CARRIED = {each.config.removeprefix("rope_parameters.") for each in keys.ROPE_SCALING}


def check_writable(config: DraftConfig, where: str) -> tuple[Remark, ...]:
    """What a GGUF of this config says and llama.cpp does not heed, and whether it loads it at all.

    Raises Refused with every finding: dflash.key_missing (the context's length), gguf_causal_full_layers,
    gguf_rope_scaling (a key of YaRN that a GGUF has no place for).
    """
    findings = Findings()
    if config.max_position_embeddings is None:
        findings.add(
            "dflash.key_missing",
            f"{where}:max_position_embeddings",
            None,
            "a whole number",
            "A GGUF states the length of the context, llama.cpp does not load it otherwise, and this draft does not. "
            "State max_position_embeddings in its config.json.",
        )
    if config.causal and FULL in config.layer_types:
        findings.add("dflash.gguf_causal_full_layers", f"{where}:is_causal", True, False, CAUSAL_FULL_LAYERS)
    for name in sorted(config.rope.scaling.keys() - _CARRIED):
        findings.add(
            "dflash.gguf_rope_scaling",
            f"{where}:rope_scaling.{name}",
            config.rope.scaling[name],
            sorted(_CARRIED),
            f"A GGUF has no key for {name}, and without it positions would be rotated differently; use the draft in "
            "another form.",
        )
    findings.raise_if_any()
    remarks = [
        Remark(
            "dflash.gguf_key_unheeded",
            key,
            f"The file says {value:g}, as llama.cpp's converter would, but llama.cpp does not read {key} of a draft.",
        )
        for key, value in _scaling(config).items()
        if key in keys.UNHEEDED
    ]
    top_k = config.second.selector_top_k if config.second else 0
    if config.hidden_size < top_k * (top_k + 1):
        remarks.append(
            Remark(
                "dflash.gguf_not_loaded",
                keys.key("selector_top_k"),
                f"llama.cpp loads no draft whose hidden size ({config.hidden_size}) is below selector_top_k x "
                f"(selector_top_k + 1) = {top_k * (top_k + 1)}.",
            )
        )
    return tuple(remarks)


def add_config(writer: "GGUFWriter", config: DraftConfig, file_type: int, *, mrope: bool) -> dict[str, float]:
    """Writes the keys into `writer`, in the converter's order. mrope: whether the target's positions have several axes.

    Returns key -> value for those reals that a float32 does not give again.
    """
    from gguf import GGML_QUANT_VERSION, RopeScalingType

    rounded: dict[str, float] = {}

    def whole(key: str, value: float) -> None:
        writer.add_uint32(key, int(value))

    def real(key: str, value: float) -> None:
        writer.add_float32(key, value)
        if float(str(np.float32(value))) != value:
            rounded[key] = value

    values = {key.config: key.key for key in keys.REQUIRED}
    for name in ("num_hidden_layers", "max_position_embeddings", "hidden_size", "intermediate_size"):
        whole(values[name], getattr(config, name))
    for name in ("num_attention_heads", "num_key_value_heads"):
        whole(values[name], getattr(config, name))
    causal_at_top = not config.causal and "is_causal" in config.places.get("causal", ())
    if causal_at_top:
        writer.add_bool(keys.CAUSAL, False)
    scaling = _scaling(config)
    if scaling:
        writer.add_rope_scaling_type(RopeScalingType(config.rope.type))
    forms = {each.key: each.form for each in keys.ROPE_SCALING}
    for key, value in scaling.items():
        whole(key, value) if forms[key] == "whole" else real(key, value)
    real(values["rope_parameters.rope_theta"], config.rope.theta)
    real(values["rms_norm_eps"], config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_file_type(file_type)
    whole(values["block_size"], config.block_size)
    if config.second is not None:
        for each in keys.SECOND:
            whole(each.key, getattr(config.second, each.config))
    for each in keys.OPTIONAL[:3]:
        stated = getattr(config, each.config)
        if stated is not None and (stated != 1.0 or config.stated(each.config)):
            real(each.key, stated)
    writer.add_array(keys.TARGET_LAYERS, [each + 1 for each in config.target_layer_ids])
    if config.sliding_window is not None:
        writer.add_sliding_window(config.sliding_window)
        writer.add_sliding_window_pattern([kind == SLIDING for kind in config.layer_types])
    if not causal_at_top and (config.sliding_window is not None or config.places.get("causal") != (DEFAULT,)):
        writer.add_bool(keys.CAUSAL, config.causal)
    if mrope:
        writer.add_array(keys.ROPE_SECTIONS, [config.head_dim // 2, 0, 0, 0])
    writer.add_quantization_version(GGML_QUANT_VERSION)
    return rounded


def _scaling(config: DraftConfig) -> dict[str, float]:
    """GGUF key -> value of the rotary scaling, in the converter's order."""
    names = {each.config.removeprefix("rope_parameters."): each.key for each in keys.ROPE_SCALING}
    return {key: config.rope.scaling[name] for name, key in names.items() if name in config.rope.scaling}
