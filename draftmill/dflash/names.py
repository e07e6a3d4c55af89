"""Names of a draft's tensors: the one the mill uses for each, and every spelling that published files have.

Sources: dflash.md sections 2 and 5.2, q4nx.md sections 6.2 and 7.2. Whether a FastFlowLM container puts `model.`
before a name, and `dflash.` before a scalar's, is not established, so both are accepted; which was met is recorded.
"""

FUSION = "fc.weight"
HIDDEN_NORM = "hidden_norm.weight"
FINAL_NORM = "norm.weight"
SELECTOR = "candidate_selector.hidden_projection.weight"
PREDECESSOR = "candidate_selector.predecessor_codebook"
SUCCESSOR = "candidate_selector.successor_codebook"

ATTENTION_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP_PROJECTIONS = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
LAYER_NORMS = ("input_layernorm", "post_attention_layernorm")
HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
CONVOLUTIONS = ("attention_conv", "mlp_conv")

TENSOR_PREFIXES = ("model.", "")
SCALAR_PREFIXES = ("dflash.", "")
SCALARS = ("block_size", "target_layer_ids", "sliding_window", "rope_theta", "rms_eps", "embedding_scale")
"""What a generation 1 container repeats of its config."""

_ALIASES = {FUSION: "encoder.fc.weight", HIDDEN_NORM: "encoder.output_norm_enc.weight"}
"""transformers', vLLM's and llama.cpp's names of what runs once over the context."""
_FIRST, _MIDLAYER = "layers.0.", "midlayer."

EXTENSIONS = {
    "d2t": "a map between vocabularies",
    "t2d": "a map between vocabularies",
    "embed_tokens": "an embedding table of its own",
    "lm_head": "a head of its own",
    "mask_embedding": "a mask row of its own",
    "sinks": "attention sinks",
    "sink_bias": "attention sinks",
    "aux_hidden_norms": "norms of single taps",
    "g_proj": "an attention gate",
    "bias": "biases",
}
"""Parts of names of known extensions that are no DFlash, and what they are (dflash.md section 2)."""


def layer(i: int, part: str) -> str:
    return f"layers.{i}.{part}"


def spellings(name: str) -> dict[str, tuple[str, str]]:
    """Every accepted spelling of a tensor's name -> (prefix, alias in use or "")."""
    if name in SCALARS:
        return {prefix + name: (prefix, "") for prefix in SCALAR_PREFIXES}
    bodies = {name: ""}
    if name in _ALIASES:
        bodies[_ALIASES[name]] = "encoder."
    if name.startswith(_FIRST):
        bodies[_MIDLAYER + name.removeprefix(_FIRST)] = _MIDLAYER
    if name in (PREDECESSOR, SUCCESSOR):
        bodies[f"{name}.weight"] = ".weight"
    return {prefix + body: (prefix, alias) for body, alias in bodies.items() for prefix in TENSOR_PREFIXES}


def choices(name: str, prefix: str, alias: str) -> dict[str, str]:
    """The choices that a file makes once for all its names, and how a tensor's spelling made them."""
    if name in SCALARS:
        return {"prefix of scalars": prefix}
    made = {"prefix": prefix}
    if name in _ALIASES:
        made["names of what runs over the context"] = alias
    elif name.startswith(_FIRST):
        made["name of the first layer"] = alias
    elif name in (PREDECESSOR, SUCCESSOR):
        made["ending of codebooks"] = alias
    return made


def extension(name: str) -> str | None:
    """Which known extension of DFlash a tensor's name belongs to."""
    parts = name.replace("_weight", "").split(".")
    return next((what for part, what in EXTENSIONS.items() if part in parts), None)
