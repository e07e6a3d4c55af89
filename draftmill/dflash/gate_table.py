"""The gate's checks: the one place where each has its name, its title and what it expects.

`HOMES` says which check a refusal of the config or of the container's form belongs to.
"""

from dataclasses import dataclass
from typing import Any, Literal

from draftmill.dflash import names
from draftmill.dflash.inventory import Role

RATIO_BAND = (-10.0, -5.0)
"""Median of minimum / scale of a tensor. Ranges of weights around zero give -7.5; Bolt -7.59 to -7.33 (seed page)."""
HALF_ABOVE, HALF_NOT_FINITE = 0.01, 0.001
"""Shares of values above 100 and not finite, below both of which a half-float reading is plausible (Bolt: 0.257, 0.018;
a real half-float matrix has neither)."""


@dataclass(frozen=True)
class Declared:
    """A check as declared. generations: to which it applies."""

    id: str
    title: str
    place: str
    expected: Any
    generations: tuple[Literal[1, 2], ...] = (1, 2)


def _scalar(name: str) -> Declared:
    return Declared(f"scalars.{name}", f"container's {name} is the config's", name, "the config's value")


CHECKS: tuple[Declared, ...] = (
    Declared("files.links", "files lie in the package", "package", "no link that leaves the folder"),
    Declared("files.readable", "files can be read", "package", "regular files that may be read"),
    Declared("files.whole", "container has no holes", "container", "no part that was never written"),
    Declared("files.settled", "nothing writes to the files", "package", "size and time as at the start"),
    Declared("manifest.form", "manifest can be read", "MANIFEST.sha256", "lines of sha256sum, paths in the package"),
    Declared("manifest.container", "manifest vouches for the container", "MANIFEST.sha256", "a line for the container"),
    Declared("manifest.digests", "files have the manifest's digests", "MANIFEST.sha256", "equal SHA-256"),
    Declared("config.form", "config is readable JSON", "config.json", "one JSON object"),
    Declared("config.model_type", "package is a draft's", "config.json:model_type", "dflash"),
    Declared("config.architecture", "architecture is known", "config.json:architectures", "a DFlash generation"),
    Declared("config.keys", "config states what a draft needs", "config.json", "every key, with a possible value"),
    Declared("config.places", "places in the config agree", "config.json", "one value a key"),
    Declared("config.extensions", "no key changes the draft unseen", "config.json", "known keys with ordinary values"),
    Declared("config.sizes", "sizes fit each other", "config.json", "heads, halves and groups that divide"),
    Declared("config.rope", "rotary parameters are known", "config.json", "a known rotary type and its keys"),
    Declared("config.visibility", "window and layer types fit", "config.json", "one reading of what a row sees"),
    Declared("config.mask", "mask id is in the vocabulary", "config.json:mask_token_id", "below vocab_size"),
    Declared("config.layer_ids", "tapped layers are the target's", "config.json:target_layer_ids", "layers, each once"),
    Declared(
        "config.layer_ids_base",
        "layer ids count outputs from 0",
        "config.json:target_layer_ids",
        "ids L and not L+1",
    ),
    Declared("config.weight_path", "weight path stays in the package", "config.json", "a plain path inside"),
    Declared("config.top_k", "top-k is in the vocabulary", "config.json:selector_top_k", "at most vocab_size", (2,)),
    Declared("container.found", "container is there", "container", "model.q4nx, or the one named"),
    Declared("container.header", "header describes the file", "container", "tensors inside the file, none overlapping"),
    Declared("container.unclaimed", "no bytes beside the tensors", "container", "zeros of padding at most"),
    Declared("tensors.present", "no tensor is missing", "container", "every tensor of the config's draft"),
    Declared("tensors.explained", "no tensor is unexplained", "container", "only tensors of the config's draft"),
    Declared("tensors.single", "no tensor stands twice", "container", "one name a tensor"),
    Declared("tensors.names", "names are of one writer", "container", "one spelling: one prefix, one set of aliases"),
    Declared("tensors.labels", "dtype labels fit the roles", "container", "I8 for tiles, BF16 for gains"),
    Declared("tensors.encodings", "chunks are of the generation", "container", "5120 in generation 1, 4736 in 2"),
    Declared("tensors.uniform", "projections share an encoding", "container", "one encoding"),
    Declared("tensors.head_dim", "head_dim fits the stored tiles", "self_attn", "the config's head_dim"),
    Declared("tensors.tiles", "projections have the config's tiles", "container", "bytes = (N/32)(K/256) x chunk"),
    Declared("norms.lengths", "norms have the config's lengths", "norms", "hidden_size, head_dim"),
    Declared("fusion.shape", "fusion matrix has the config's shape", names.FUSION, "hidden x taps of hidden"),
    Declared(
        "conv.geometry",
        "convolutions fit kernel and group size",
        "layers",
        "[2, taps, hidden], 2 taps hidden/group",
        (2,),
    ),
    Declared("selector.geometry", "selector projection fits the rank", names.SELECTOR, "rank x hidden", (2,)),
    Declared("codebooks.geometry", "codebooks fit vocabulary and rank", "candidate_selector", "vocab x rank", (2,)),
    Declared(
        "packed.not_half_float",
        "tiles are not half-float matrices",
        "packed tensors",
        f"half-float reading with {HALF_ABOVE:.0%} above 100, or {HALF_NOT_FINITE:.1%} not finite",
    ),
    Declared(
        "packed.not_legacy", "codes are of the current form", "packed tensors", "unsigned codes with minimums", (1,)
    ),
    Declared("scales.finite", "scales are finite", "packed tensors", "every one"),
    Declared("scales.positive", "scales are positive", "packed tensors", "every one"),
    Declared("minimums.finite", "minimums are finite", "packed tensors", "every one"),
    Declared("minimums.band", "minimum/scale is that of weights", "packed tensors", f"median in {list(RATIO_BAND)}"),
    Declared(
        "packed.magnitude",
        "decoded weights are of plausible size",
        "packed tensors",
        "at most 2^16, scales at most 2^16 medians, not all tiny",
    ),
    Declared(
        "packed.codes",
        "codes are those of weights",
        "packed tensors",
        "no group of one code, no tile with more than a quarter zeros",
    ),
    Declared("norms.finite", "norm gains are finite", "norms", "every one"),
    Declared("norms.bfloat16", "norm gains are bfloat16", "norms", "gains of plausible size as bfloat16"),
    Declared("fusion.finite", "fusion matrix is finite", names.FUSION, "every value", (1,)),
    Declared("fusion.bfloat16", "fusion matrix is bfloat16", names.FUSION, "weights of plausible size", (1,)),
    Declared(
        "fusion.order",
        "fusion matrix is in the declared order",
        names.FUSION,
        "[N/32, K, 32], by neighbours",
        (1,),
    ),
    Declared("conv.kernels", "base kernels are finite weights", "layers", "finite, of plausible size", (2,)),
    Declared("codebooks.values", "plain codebooks are finite weights", "candidate_selector", "finite, plausible", (2,)),
    Declared("matrices.values", "plain matrices are finite weights", "matrices", "finite, of plausible size"),
    Declared(
        "weights.whole",
        "no part of a matrix is missing",
        "matrices",
        "at most a quarter zeros, of codebooks half; no lost tap, no run of one value in the fusion matrix",
    ),
    Declared(
        "weights.distinct",
        "no weights stand twice",
        "matrices",
        "at most 1/64 of a matrix elsewhere too, of codebooks half",
    ),
    *(_scalar(name) for name in names.SCALARS),
)
BY_ID = {check.id: check for check in CHECKS}
OF_CONTAINER = tuple(id for id in BY_ID if id.partition(".")[0] not in ("files", "manifest", "config"))
"""Checks that look into the container."""
OF_TILES = tuple(id for id in BY_ID if id.startswith(("packed.", "scales.", "minimums.")))
"""Checks of packed matrices."""

HOMES = {
    "dflash.config_missing": "config.form",
    "dflash.architecture_missing": "config.architecture",
    "dflash.architecture_unknown": "config.architecture",
    "dflash.generation_contradicted": "config.architecture",
    "dflash.key_missing": "config.keys",
    "dflash.value_invalid": "config.keys",
    "dflash.section_not_object": "config.keys",
    "dflash.conflict": "config.places",
    "dflash.unsupported_key": "config.extensions",
    "dflash.heads_indivisible": "config.sizes",
    "dflash.head_dim_odd": "config.sizes",
    "dflash.group_indivisible": "config.sizes",
    "dflash.rope_type_unknown": "config.rope",
    "dflash.rope_key_missing": "config.rope",
    "dflash.rope_key_invalid": "config.rope",
    "dflash.rope_key_unknown": "config.rope",
    "dflash.rope_per_layer_type": "config.rope",
    "dflash.layer_types_missing": "config.visibility",
    "dflash.layer_types_length": "config.visibility",
    "dflash.window_contradicted": "config.visibility",
    "dflash.causality_not_stated": "config.visibility",
    "dflash.causality_contradicted": "config.visibility",
    "dflash.mask_outside_vocabulary": "config.mask",
    "dflash.layer_ids_range": "config.layer_ids",
    "dflash.layer_ids_repeated": "config.layer_ids",
    "dflash.weight_path": "config.weight_path",
    "dflash.top_k_above_vocabulary": "config.top_k",
    "dflash.container_missing": "container.found",
    "dflash.container_ambiguous": "container.found",
    "dflash.tensor_missing": "tensors.present",
    "dflash.tensor_unexplained": "tensors.explained",
    "dflash.tensor_twice": "tensors.single",
    "dflash.names_mixed": "tensors.names",
    "q4nx.dtype_unexpected": "tensors.labels",
    "dflash.dtype_unexpected": "tensors.labels",
    "q4nx.legacy_subtractive": "tensors.labels",
    "dflash.encodings_mixed": "tensors.uniform",
}
"""Code of a refusal -> the check it belongs to. Shapes go by role (`SHAPES`)."""

SHAPE_CODES = frozenset(
    {"q4nx.tile_count", "q4nx.rank_unexpected", "q4nx.rows_not_whole_tiles", "q4nx.shape_unexpected"}
    | {"dflash.shape_unexpected"}
)
SHAPES = {
    Role.PROJECTION: "tensors.tiles",
    Role.NORM: "norms.lengths",
    Role.FUSION: "fusion.shape",
    Role.CONV_PROJECTION: "conv.geometry",
    Role.CONV_KERNEL: "conv.geometry",
    Role.SELECTOR: "selector.geometry",
    Role.CODEBOOK: "codebooks.geometry",
}


def home_of(code: str, role: Role | None, otherwise: str) -> str:
    """The check that a refusal belongs to; codes that are not listed go to `otherwise`."""
    if code in SHAPE_CODES and role in SHAPES:
        return SHAPES[role]
    return HOMES.get(code, otherwise)


_PACKED = ("packed.", "scales.", "minimums.")
_OF_ROLE = {
    Role.PROJECTION: ("tensors.tiles", "matrices.", "weights."),
    Role.NORM: ("norms.",),
    Role.FUSION: ("fusion.", "weights."),
    Role.CONV_PROJECTION: ("conv.geometry", "matrices.", "weights."),
    Role.CONV_KERNEL: ("conv.",),
    Role.SELECTOR: ("selector.", "matrices.", "weights."),
    Role.CODEBOOK: ("codebooks.", "weights."),
}
_PACKED_ROLES = {
    1: (Role.PROJECTION,),
    2: (Role.PROJECTION, Role.FUSION, Role.CONV_PROJECTION, Role.SELECTOR, Role.CODEBOOK),
}


def checks_of(role: Role, generation: Literal[1, 2]) -> tuple[str, ...]:
    """The checks that look at the size or the values of a role's tensors."""
    prefixes = _OF_ROLE.get(role, ()) + (_PACKED if role in _PACKED_ROLES[generation] else ())
    return tuple(id for id in BY_ID if id.startswith(prefixes))
