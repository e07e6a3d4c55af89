"""Names of a draft's tensors in a GGUF file, from and to the names that the mill uses.

Source: llama.cpp's gguf-py/gguf/constants.py and tensor_mapping.py, architecture `dflash` (dflash.md section 5.2).
"""

from draftmill.dflash import names

_WHOLE = {
    names.FUSION: "fc.weight",
    names.HIDDEN_NORM: "enc.output_norm.weight",
    names.FINAL_NORM: "output_norm.weight",
    names.SELECTOR: "selector_hidden.weight",
    names.PREDECESSOR: "selector_predecessor.weight",
    names.SUCCESSOR: "selector_successor.weight",
}
_OF_A_LAYER = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection.weight": "attn_conv_proj.weight",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection.weight": "ffn_conv_proj.weight",
}
EXTENSIONS = {
    "token_embd": "an embedding table of its own",
    "output": "a head of its own",
    "d2t": "a map between vocabularies",
    "attn_sinks": "attention sinks",
    "attn_post_norm": "norms after attention",
    "post_attention_norm": "norms after attention",
    "post_ffw_norm": "norms after the MLP",
    "ffn_post_norm": "norms after the MLP",
    "layer_output_scale": "a scale on what a layer gives",
    "rope_freqs": "rotary factors of its own",
    "markov_w1": "a Markov head (DSpark)",
    "markov_w2": "a Markov head (DSpark)",
    "conf_proj": "a confidence head (DSpark)",
    "bias": "biases",
    "scale": "scales beside the weights",
}
"""Parts of names of what llama.cpp's `dflash` may have beyond DFlash, and what they are."""


def gguf_name(name: str) -> str:
    """The name in a GGUF file of the tensor that the mill calls `name`. Raises KeyError for another."""
    if name in _WHOLE:
        return _WHOLE[name]
    _, layer, part = name.split(".", 2)
    return f"blk.{layer}.{_OF_A_LAYER[part]}"


def extension(name: str) -> str | None:
    """Which extension of DFlash a GGUF tensor's name belongs to."""
    return next((EXTENSIONS[part] for part in name.split(".") if part in EXTENSIONS), None)
