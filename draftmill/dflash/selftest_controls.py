"""The gate's negative controls: for every check the smallest change of a sound package that it alone catches."""

from dataclasses import dataclass

import numpy as np

from draftmill.dflash import selftest_changes as do
from draftmill.dflash import selftest_damage as damage
from draftmill.dflash.package import CONTAINER, MANIFEST
from draftmill.dflash.selftest_changes import Change, cut, in_config, in_tensors, poke, scalar, setting, tile_less
from draftmill.dflash.selftest_specimen import (
    edit_bytes,
    punch_hole,
    write_first,
    write_plain_first,
    write_plain_second,
    write_second,
)
from draftmill.q4nx.encodings import Kind

BASES: dict[str, Change] = {
    "generation 1": write_first,
    "generation 2": write_second,
    "generation 2, plain codebooks and scalars": write_plain_second,
    "generation 1, plain matrices": write_plain_first,
}
FIRST, SECOND, PLAIN_SECOND, PLAIN_FIRST = BASES


@dataclass(frozen=True)
class Control:
    """change spoils a copy of a sound package before the gate runs, `during` while it reads."""

    check: str
    what: str
    base: str
    change: Change
    during: Change | None = None


_LAYER = "model.layers.0."
_Q, _K, _V = (f"{_LAYER}self_attn.{each}_proj.weight" for each in "qkv")
_DOWN = f"{_LAYER}mlp.down_proj.weight"
_NORM, _FINAL, _FC = f"{_LAYER}input_layernorm.weight", "model.norm.weight", "model.fc.weight"
_KERNEL = f"{_LAYER}attention_conv.base_kernel"
_SELECTOR = "model.candidate_selector.hidden_projection.weight"
_CODEBOOK = "model.candidate_selector.successor_codebook"
_PREDECESSOR = "model.candidate_selector.predecessor_codebook"
_NAN, _INFINITY = b"\xc0\x7f", b"\x80\x7f"
_HUGE, _MINUS_HUGE = b"\x00\x7f", b"\x00\xff"
_E = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
"""SHA-256 of nothing."""
_SHIFTED = np.array([2, 6, 10], "<i4").tobytes()

CONTROLS: tuple[Control, ...] = (
    Control("files.links", "config.json is a link out of the folder", FIRST, do.link_config_out),
    Control("files.readable", "a pipe in the container's place", FIRST, do.put_a_pipe),
    Control("files.whole", "one page was never written", PLAIN_SECOND, lambda f: punch_hole(f, _CODEBOOK)),
    Control("files.settled", "the container grows by a byte while it is read", FIRST, do.nothing, do.grow),
    Control("manifest.form", "a line that is no digest", FIRST, do.in_manifest(lambda text: text + "not a digest\n")),
    Control(
        "manifest.container",
        "no line for the container",
        FIRST,
        do.in_manifest(lambda text: "".join(line for line in text.splitlines(True) if CONTAINER not in line)),
    ),
    Control(
        "manifest.digests",
        "one digit of a digest is another",
        FIRST,
        do.in_manifest(lambda text: ("0" if text[0] != "0" else "1") + text[1:]),
    ),
    Control("manifest.form", "a line for itself", FIRST, do.in_manifest(lambda t: f"{t}{_E}  {MANIFEST}\n")),
    Control("manifest.digests", "a listed file is not there", FIRST, do.in_manifest(lambda t: f"{t}{_E}  more\n")),
    Control("manifest.digests", "another list contradicts it", FIRST, do.in_another_manifest(f"{_E}  {CONTAINER}\n")),
    Control("config.form", "a brace too many", FIRST, do.break_json),
    Control("config.model_type", "model_type of an upstream checkpoint", FIRST, setting("model_type", "qwen3")),
    Control("config.architecture", "a main model's architecture", FIRST, setting("architectures", ["Qwen3Model"])),
    Control("config.keys", "no mask_token_id", FIRST, in_config(lambda c: c["dflash_config"].pop("mask_token_id"))),
    Control("config.places", "another mask_token_id at the top", FIRST, setting("mask_token_id", 5)),
    Control("config.extensions", "projections have biases", FIRST, setting("attention_bias", True)),
    Control("config.sizes", "3 key heads for 8 query heads, stored as well", FIRST, do.three_key_heads),
    Control("config.rope", "an unknown rotary type", FIRST, setting("rope_scaling", {"rope_type": "spiral"})),
    Control("config.visibility", "layers slide and use_swa is false", FIRST, setting("dflash_config.use_swa", False)),
    Control("config.mask", "mask id one beyond the vocabulary", FIRST, setting("dflash_config.mask_token_id", 512)),
    Control("config.layer_ids", "a layer too deep", FIRST, do.too_deep),
    Control("config.layer_ids_base", "ids shifted by one in both places", FIRST, do.shift_ids),
    Control("config.weight_path", "a weight path out of the package", FIRST, setting("weight_file", "../model.q4nx")),
    Control("config.top_k", "top-k one above the vocabulary", SECOND, setting("dflash_config.selector_top_k", 513)),
    Control("container.found", "config names an absent container", FIRST, setting("weight_file", "other.q4nx")),
    Control("container.header", "the last byte is missing", FIRST, lambda f: edit_bytes(f, lambda d: d.pop())),
    Control("container.unclaimed", "a byte behind the tensors", FIRST, lambda f: edit_bytes(f, lambda d: d.append(1))),
    Control("tensors.present", "a norm is missing", FIRST, in_tensors(lambda t: t.pop(_NORM))),
    Control("tensors.present", "a projection is missing", SECOND, in_tensors(lambda t: t.pop(_Q))),
    Control("tensors.explained", "attention sinks", FIRST, do.added(f"{_LAYER}sinks", _NORM)),
    Control("tensors.explained", "a convolution of generation 2", FIRST, do.added(_KERNEL, _NORM)),
    Control("tensors.single", "a norm under two names", FIRST, do.added(_NORM.removeprefix("model."), _NORM)),
    Control("tensors.names", "a norm without the prefix of the others", FIRST, do.renamed(_NORM, _NORM[6:])),
    Control("tensors.names", "a layer's convolution without the prefix", SECOND, do.renamed(_KERNEL, _KERNEL[6:])),
    Control("tensors.names", "a scalar without its prefix", FIRST, do.renamed("dflash.rms_eps", "rms_eps")),
    Control("tensors.names", "one codebook ends in .weight", SECOND, do.renamed(_CODEBOOK, f"{_CODEBOOK}.weight")),
    Control("tensors.labels", "a norm labelled F16", FIRST, do.relabelled(_NORM, "F16")),
    Control("tensors.labels", "tiles labelled U8", SECOND, do.relabelled(_Q, "U8")),
    Control("tensors.encodings", "tiles of 32 x 128", FIRST, do.reshaped(_Q, (32, 2560))),
    Control("tensors.encodings", "5120-byte chunks in generation 2", SECOND, do.in_encoding(_K, Kind.Q4_1, 256, 256)),
    Control("tensors.uniform", "one projection in Q4_K among q4_1", FIRST, do.in_encoding(_K, Kind.Q4_K, 256, 256)),
    Control("tensors.head_dim", "head_dim of half the stored tiles", FIRST, setting("head_dim", 32)),
    Control("tensors.head_dim", "head_dim of twice the stored tiles", SECOND, setting("head_dim", 128)),
    Control("tensors.tiles", "a projection a tile short", FIRST, tile_less(_DOWN)),
    Control("tensors.tiles", "a projection a row of tiles short", SECOND, tile_less(_DOWN)),
    Control("norms.lengths", "a norm a gain short", FIRST, cut(_FINAL, (255,), 510)),
    Control("fusion.shape", "the fusion matrix a column short", FIRST, cut(_FC, (8, 767, 32), 2 * 8 * 767 * 32)),
    Control("fusion.shape", "the fusion matrix a row of tiles short", SECOND, tile_less(_FC)),
    Control("conv.geometry", "groups of twice the stored size", SECOND, setting("dflash_config.conv_group_size", 32)),
    Control("conv.geometry", "a base kernel of one side", SECOND, cut(_KERNEL, (1, 2, 256), 1024)),
    Control("selector.geometry", "the selector's projection a row of tiles short", SECOND, tile_less(_SELECTOR)),
    Control("codebooks.geometry", "a codebook 32 tokens short", SECOND, tile_less(_CODEBOOK)),
    Control("packed.not_half_float", "half-float twin of equal size", FIRST, do.half_float_weights(_V)),
    Control("packed.not_half_float", "half-float twin of equal size", SECOND, do.half_float_weights(_V)),
    Control("packed.not_legacy", "signed codes: every minimum zero", FIRST, do.scaled_minimums(_V, 0.0)),
    Control("packed.not_legacy", "signed codes in three of eight tiles", FIRST, damage.no_minimums(_V, 3)),
    Control("scales.finite", "one scale is NaN", FIRST, poke(_V, 0, _NAN)),
    Control("scales.finite", "one row's scale is NaN", SECOND, poke(_V, 4608, _NAN)),
    Control("scales.positive", "one scale is zero", FIRST, poke(_V, 0, b"\0\0")),
    Control("scales.positive", "one group's scale is zero", SECOND, poke(_V, 0, b"\0")),
    Control("minimums.finite", "one minimum is infinite", FIRST, poke(_V, 512, _INFINITY)),
    Control("minimums.finite", "one row's minimum is infinite", SECOND, poke(_V, 4672, _INFINITY)),
    Control("minimums.band", "minimums of one projection halved", FIRST, do.scaled_minimums(_V, 0.5)),
    Control("minimums.band", "minimums of one projection halved", SECOND, do.halved_q4_k_minimums(_V)),
    Control("minimums.band", "minimums of three of eight tiles halved", FIRST, damage.halved_minimums(_V, 3)),
    Control("packed.magnitude", "one scale is a millionth", FIRST, poke(_V, 0, b"\x80\x32")),
    Control("packed.magnitude", "one row's scale is a millionth", SECOND, poke(_V, 4608, b"\x80\x2e")),
    Control("packed.codes", "the codes of every second row are zero", FIRST, damage.no_even_rows(_V)),
    Control("packed.codes", "half of the codes of one tile are zero", SECOND, damage.no_codes(_V)),
    Control("packed.magnitude", "factors whose sum is infinite", FIRST, do.poked(_V, {0: _HUGE, 512: _MINUS_HUGE})),
    Control("packed.magnitude", "one scale is 8e6", FIRST, poke(_V, 0, b"\xf4\x4a")),
    Control("packed.magnitude", "one row's scale is 2^16", SECOND, poke(_V, 4608, b"\x80\x47")),
    Control("norms.finite", "one gain is infinite", FIRST, poke(_FINAL, 0, _INFINITY)),
    Control("norms.bfloat16", "half-float twin of a norm", FIRST, do.as_half_floats(_FINAL)),
    Control("norms.bfloat16", "one gain is 2^17", FIRST, poke(_FINAL, 0, b"\x00\x48")),
    Control("norms.bfloat16", "a norm of zeros", FIRST, do.zeroed(_FINAL)),
    Control("fusion.finite", "one value is NaN", FIRST, poke(_FC, 0, _NAN)),
    Control("fusion.bfloat16", "half-float twin of the fusion matrix", FIRST, do.as_half_floats(_FC)),
    Control("fusion.bfloat16", "a twentieth in half floats", FIRST, damage.partly_half_floats(_FC, 0.5, 0.55)),
    Control("fusion.bfloat16", "one value is 1.7e38", FIRST, poke(_FC, 0, _HUGE)),
    Control("fusion.order", "the fusion matrix row-major under the same shape", FIRST, do.row_major(_FC, 256, 768)),
    Control("fusion.order", "the fusion matrix column-major", FIRST, do.in_blocks(_FC, 256, 768, 256)),
    Control("fusion.order", "the fusion matrix in blocks of 16 rows", FIRST, do.in_blocks(_FC, 256, 768, 16)),
    Control("fusion.order", "the fusion matrix in blocks of 32 columns", FIRST, damage.in_column_blocks(_FC, 256, 768)),
    Control("conv.kernels", "half floats, a tenth of them zero", SECOND, damage.partly_half_floats(_KERNEL, 0, 1, 0.1)),
    Control("conv.kernels", "one value is NaN", SECOND, poke(_KERNEL, 0, _NAN)),
    Control("conv.kernels", "half-float twin of a base kernel", SECOND, do.as_half_floats(_KERNEL)),
    Control("matrices.values", "half-float twin of a projection", PLAIN_FIRST, do.as_half_floats(_Q)),
    Control("matrices.values", "one value is NaN", PLAIN_FIRST, poke(_DOWN, 0, _NAN)),
    Control("codebooks.values", "half-float twin of a codebook", PLAIN_SECOND, do.as_half_floats(_CODEBOOK)),
    Control("codebooks.values", "one value is NaN", PLAIN_SECOND, poke(_CODEBOOK, 0, _NAN)),
    Control("weights.whole", "one tap of the fusion matrix is zero", FIRST, damage.zero_tap(_FC, 768, 256, 512)),
    Control("weights.whole", "a page of the fusion matrix is zero", FIRST, poke(_FC, 100_000, bytes(4096))),
    Control("weights.whole", "one tap of the fusion matrix is zero", SECOND, damage.no_column_of_tiles(_FC, 256)),
    Control("weights.whole", "most rows of a codebook are zero", PLAIN_SECOND, damage.zero_rows(_CODEBOOK, 256, 0.7)),
    Control("weights.distinct", "one tile all over a projection", FIRST, damage.one_tile(_V, 5120)),
    Control("weights.distinct", "one tile all over a projection", SECOND, damage.one_tile(_V, 4736)),
    Control("weights.distinct", "a projection in place of another", FIRST, damage.copied(_K, _V)),
    Control("weights.distinct", "both codebooks are one", SECOND, damage.copied(_CODEBOOK, _PREDECESSOR)),
    Control("weights.distinct", "both codebooks are one", PLAIN_SECOND, damage.copied(_CODEBOOK, _PREDECESSOR)),
    Control("scalars.block_size", "off by one", FIRST, scalar("block_size", b"\x09")),
    Control("scalars.block_size", "off by one", PLAIN_SECOND, scalar("block_size", b"\x09")),
    Control("scalars.target_layer_ids", "each shifted by one", FIRST, scalar("target_layer_ids", _SHIFTED)),
    Control("scalars.sliding_window", "off by one", FIRST, scalar("sliding_window", b"\x3f")),
    Control("scalars.rope_theta", "half of the config's", FIRST, scalar("rope_theta", np.float32(5e5).tobytes())),
    Control("scalars.rms_eps", "1e-5 for 1e-6", FIRST, scalar("rms_eps", np.float32(1e-5).tobytes())),
    Control("scalars.embedding_scale", "2 for 1", FIRST, scalar("embedding_scale", np.float32(2).tobytes())),
)  # fmt: skip
