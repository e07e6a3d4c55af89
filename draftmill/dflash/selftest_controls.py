"""The gate's negative controls: for every check the smallest change of a sound package that it alone catches."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.dflash.package import CONTAINER, MANIFEST
from draftmill.dflash.selftest_specimen import (
    Tensors,
    bytes_of,
    edit_bytes,
    edit_config,
    edit_tensors,
    punch_hole,
    sign,
    write_first,
    write_plain_second,
    write_second,
)
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode
from draftmill.q4nx.tiles import to_bf16
from draftmill.q4nx.writing import Stored

Change = Callable[[Path], None]
BASES: dict[str, Change] = {
    "generation 1": write_first,
    "generation 2": write_second,
    "generation 2, plain codebooks and scalars": write_plain_second,
}
FIRST, SECOND, PLAIN_SECOND = BASES


@dataclass(frozen=True)
class Control:
    """change spoils a copy of a sound package before the gate runs, `during` while it reads."""

    check: str
    what: str
    base: str
    change: Change
    during: Change | None = None


def _config(change: Callable[[dict[str, Any]], Any]) -> Change:
    return lambda folder: edit_config(folder, lambda content: change(content) and None)


def _set(path: str, value: Any) -> Change:
    """Sets a key, of an inner object where the path has a dot."""
    section, _, name = path.rpartition(".")
    return _config(lambda content: (content[section] if section else content).update({name: value}))


def _tensors(change: Callable[[Tensors], Any]) -> Change:
    return lambda folder: edit_tensors(folder, lambda tensors: change(tensors) and None)


def _cut(name: str, shape: tuple[int, ...], nbytes: int) -> Change:
    """Gives a tensor a smaller shape and its first bytes."""

    def change(tensors: Tensors) -> None:
        tensors[name] = replace(tensors[name], shape=shape, data=bytes_of(tensors[name])[:nbytes])

    return _tensors(change)


def _tile_less(name: str, axis: int = 0) -> Change:
    """Takes the last tile, of a grid the last row of tiles, away."""

    def change(tensors: Tensors) -> None:
        shape = list(tensors[name].shape)
        shape[axis] -= 1
        tensors[name] = replace(
            tensors[name], shape=tuple(shape), data=bytes_of(tensors[name])[: int(np.prod(shape))].copy()
        )

    return _tensors(change)


def _poke(name: str, offset: int, value: bytes) -> Change:
    """Writes bytes into a tensor."""

    def change(tensors: Tensors) -> None:
        bytes_of(tensors[name])[offset : offset + len(value)] = np.frombuffer(value, np.uint8)

    return _tensors(change)


def _relabel(name: str, label: str) -> Change:
    return _tensors(lambda tensors: tensors.update({name: replace(tensors[name], dtype=label)}))


def _halves(name: str) -> Change:
    """Replaces a tensor by half floats of weights, byte for byte as many."""

    def change(tensors: Tensors) -> None:
        data = bytes_of(tensors[name])
        weights = np.random.default_rng(1).normal(0, 0.02, data.size // 2).astype("<f2")
        data[:] = weights.view(np.uint8)

    return _tensors(change)


def _as_half(name: str) -> Change:
    """Stores the values of a bfloat16 tensor as half floats, under the same label."""

    def change(tensors: Tensors) -> None:
        data = bytes_of(tensors[name])
        values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        data[:] = values.astype("<f2").view(np.uint8)

    return _tensors(change)


def _minimums(name: str, factor: float) -> Change:
    """Scales the minimums of a q4_1 tensor."""

    def change(tensors: Tensors) -> None:
        plane = bytes_of(tensors[name]).reshape(-1, 5120)[:, 512:1024]
        values = (plane.copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
        plane[:] = to_bf16(np.ascontiguousarray(values * np.float32(factor))).view(np.uint8)

    return _tensors(change)


def _q4_k_minimums(name: str) -> Change:
    """Halves the row factors of the minimums: one less in the exponent."""

    def change(tensors: Tensors) -> None:
        plane = bytes_of(tensors[name]).reshape(-1, 4736)[:, 4672:4736]
        plane[:] = (plane.copy().view("<u2") - np.uint16(0x80)).view(np.uint8)

    return _tensors(change)


def _in_encoding(name: str, kind: Kind, rows: int, columns: int) -> Change:
    """Replaces a matrix by weights in another encoding, in the form of tiles it had."""

    def change(tensors: Tensors) -> None:
        form: Any = "grid" if len(tensors[name].shape) == 3 else "flat"
        encoding = Encoding(kind, rows, columns, form)
        weights = np.random.default_rng(1).normal(0, 0.02, (rows, columns)).astype(np.float32)
        tensors[name] = Stored("I8", encoding.shape, encode(encoding, weights))

    return _tensors(change)


def _row_major(name: str, rows: int, columns: int) -> Change:
    def change(tensors: Tensors) -> None:
        stored = bytes_of(tensors[name]).view("<u2")
        stored[:] = stored.reshape(rows // 32, columns, 32).swapaxes(1, 2).reshape(-1)

    return _tensors(change)


def _scalar(name: str, stored: bytes) -> Change:
    return _poke(f"dflash.{name}", 0, stored)


def _manifest(change: Callable[[str], str]) -> Change:
    def spoil(folder: Path) -> None:
        path = folder / MANIFEST
        path.write_text(change(path.read_text()))

    return spoil


def _linked_config(folder: Path) -> None:
    outside = folder.with_name(folder.name + ".config.json")
    (folder / "config.json").rename(outside)
    (folder / "config.json").symlink_to(outside)


def _pipe(folder: Path) -> None:
    (folder / CONTAINER).unlink()
    os.mkfifo(folder / CONTAINER)


def _broken_json(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text() + "}")
    sign(folder)


def _grow(folder: Path) -> None:
    with (folder / CONTAINER).open("ab") as file:
        file.write(b"\0")


def _nothing(folder: Path) -> None:
    pass


def _shift_ids(folder: Path) -> None:
    ids = [2, 6, 10]
    edit_config(folder, lambda content: content["dflash_config"].update({"target_layer_ids": ids}))
    _scalar("target_layer_ids", np.array(ids, "<i4").tobytes())(folder)


_LAYER = "model.layers.0."
_Q, _K, _V = (f"{_LAYER}self_attn.{each}_proj.weight" for each in "qkv")
_DOWN = f"{_LAYER}mlp.down_proj.weight"
_NORM, _FINAL, _FC = f"{_LAYER}input_layernorm.weight", "model.norm.weight", "model.fc.weight"
_KERNEL = f"{_LAYER}attention_conv.base_kernel"
_SELECTOR = "model.candidate_selector.hidden_projection.weight"
_CODEBOOK = "model.candidate_selector.successor_codebook"
_NAN, _INFINITY = b"\xc0\x7f", b"\x80\x7f"

CONTROLS: tuple[Control, ...] = (
    Control("files.links", "config.json is a link out of the folder", FIRST, _linked_config),
    Control("files.readable", "a pipe in the container's place", FIRST, _pipe),
    Control("files.whole", "one page of the container was never written", FIRST, lambda f: punch_hole(f, _FC)),
    Control("files.settled", "the container grows by a byte while it is read", FIRST, _nothing, _grow),
    Control("manifest.form", "a line that is no digest", FIRST, _manifest(lambda text: text + "not a digest\n")),
    Control(
        "manifest.container",
        "no line for the container",
        FIRST,
        _manifest(lambda text: "".join(line for line in text.splitlines(True) if CONTAINER not in line)),
    ),
    Control(
        "manifest.digests",
        "one digit of a digest is another",
        FIRST,
        _manifest(lambda text: ("0" if text[0] != "0" else "1") + text[1:]),
    ),
    Control("config.form", "a brace too many", FIRST, _broken_json),
    Control("config.model_type", "model_type of an upstream checkpoint", FIRST, _set("model_type", "qwen3")),
    Control("config.architecture", "a main model's architecture", FIRST, _set("architectures", ["Qwen3ForCausalLM"])),
    Control("config.keys", "no mask_token_id", FIRST, _config(lambda c: c["dflash_config"].pop("mask_token_id"))),
    Control("config.places", "another mask_token_id at the top", FIRST, _set("mask_token_id", 5)),
    Control("config.extensions", "projections have biases", FIRST, _set("attention_bias", True)),
    Control("config.sizes", "3 key heads for 8 query heads", FIRST, _set("num_key_value_heads", 3)),
    Control("config.rope", "an unknown rotary type", FIRST, _set("rope_scaling", {"rope_type": "spiral"})),
    Control("config.visibility", "layers slide and use_swa is false", FIRST, _set("dflash_config.use_swa", False)),
    Control("config.mask", "mask id one beyond the vocabulary", FIRST, _set("dflash_config.mask_token_id", 512)),
    Control("config.layer_ids", "a layer the target has not", FIRST, _set("dflash_config.target_layer_ids", [1, 5, 12])),
    Control("config.layer_ids_base", "layer ids shifted by one in config and container", FIRST, _shift_ids),
    Control("config.weight_path", "weight path that leaves the package", FIRST, _set("weight_file", "../model.q4nx")),
    Control("config.top_k", "top-k one above the vocabulary", SECOND, _set("dflash_config.selector_top_k", 513)),
    Control("container.found", "config names a container that is not there", FIRST, _set("weight_file", "other.q4nx")),
    Control("container.header", "the last byte is missing", FIRST, lambda f: edit_bytes(f, lambda data: data.pop() and None)),
    Control("container.unclaimed", "a byte behind the last tensor", FIRST, lambda f: edit_bytes(f, lambda d: d.append(1))),
    Control("tensors.present", "a norm is missing", FIRST, _tensors(lambda t: t.pop(_NORM))),
    Control("tensors.present", "a projection is missing", SECOND, _tensors(lambda t: t.pop(_Q))),
    Control("tensors.explained", "attention sinks", FIRST, _tensors(lambda t: t.update({f"{_LAYER}sinks": t[_NORM]}))),
    Control("tensors.explained", "convolutions in generation 1", FIRST, _tensors(lambda t: t.update({_KERNEL: t[_NORM]}))),
    Control("tensors.single", "a norm under two names", FIRST, _tensors(lambda t: t.update({_NORM[6:]: t[_NORM]}))),
    Control("tensors.labels", "a norm labelled F16", FIRST, _relabel(_NORM, "F16")),
    Control("tensors.labels", "tiles labelled U8", SECOND, _relabel(_Q, "U8")),
    Control("tensors.encodings", "tiles of 32 x 128", FIRST, _tensors(lambda t: t.update(
        {_Q: replace(t[_Q], shape=(2 * t[_Q].shape[0], 2560))}))),
    Control("tensors.encodings", "5120-byte chunks in generation 2", SECOND, _in_encoding(_K, Kind.Q4_1, 256, 256)),
    Control("tensors.uniform", "one projection in Q4_K among q4_1", FIRST, _in_encoding(_K, Kind.Q4_K, 256, 256)),
    Control("tensors.head_dim", "head_dim of half the stored tiles", FIRST, _set("head_dim", 32)),
    Control("tensors.head_dim", "head_dim of twice the stored tiles", SECOND, _set("head_dim", 128)),
    Control("tensors.tiles", "a projection a tile short", FIRST, _tile_less(_DOWN)),
    Control("tensors.tiles", "a projection a row of tiles short", SECOND, _tile_less(_DOWN)),
    Control("norms.lengths", "a norm a gain short", FIRST, _cut(_FINAL, (255,), 510)),
    Control("fusion.shape", "the fusion matrix a column short", FIRST, _cut(_FC, (8, 767, 32), 2 * 8 * 767 * 32)),
    Control("fusion.shape", "the fusion matrix a row of tiles short", SECOND, _tile_less(_FC)),
    Control("conv.geometry", "groups of twice the stored size", SECOND, _set("dflash_config.conv_group_size", 32)),
    Control("conv.geometry", "a base kernel of one side", SECOND, _cut(_KERNEL, (1, 2, 256), 1024)),
    Control("selector.geometry", "the selector's projection a row of tiles short", SECOND, _tile_less(_SELECTOR)),
    Control("codebooks.geometry", "a codebook 32 tokens short", SECOND, _tile_less(_CODEBOOK)),
    Control("packed.not_half_float", "half-float twin of equal size", FIRST, _halves(_V)),
    Control("packed.not_half_float", "half-float twin of equal size", SECOND, _halves(_V)),
    Control("packed.not_legacy", "signed codes: every minimum zero", FIRST, _minimums(_V, 0.0)),
    Control("scales.finite", "one scale is NaN", FIRST, _poke(_V, 0, _NAN)),
    Control("scales.finite", "one row's scale is NaN", SECOND, _poke(_V, 4608, _NAN)),
    Control("scales.positive", "one scale is zero", FIRST, _poke(_V, 0, b"\0\0")),
    Control("scales.positive", "one group's scale is zero", SECOND, _poke(_V, 0, b"\0")),
    Control("minimums.finite", "one minimum is infinite", FIRST, _poke(_V, 512, _INFINITY)),
    Control("minimums.finite", "one row's minimum is infinite", SECOND, _poke(_V, 4672, _INFINITY)),
    Control("minimums.band", "minimums of one projection halved", FIRST, _minimums(_V, 0.5)),
    Control("minimums.band", "minimums of one projection halved", SECOND, _q4_k_minimums(_V)),
    Control("norms.finite", "one gain is infinite", FIRST, _poke(_FINAL, 0, _INFINITY)),
    Control("norms.bfloat16", "half-float twin of a norm", FIRST, _as_half(_FINAL)),
    Control("fusion.finite", "one value is NaN", FIRST, _poke(_FC, 0, _NAN)),
    Control("fusion.bfloat16", "half-float twin of the fusion matrix", FIRST, _as_half(_FC)),
    Control("fusion.order", "the fusion matrix row-major under the same shape", FIRST, _row_major(_FC, 256, 768)),
    Control("conv.kernels", "one value is NaN", SECOND, _poke(_KERNEL, 0, _NAN)),
    Control("codebooks.values", "one value is NaN", PLAIN_SECOND, _poke(_CODEBOOK, 0, _NAN)),
    Control("scalars.block_size", "off by one", FIRST, _scalar("block_size", b"\x09")),
    Control("scalars.block_size", "off by one", PLAIN_SECOND, _scalar("block_size", b"\x09")),
    Control("scalars.target_layer_ids", "each shifted by one", FIRST, _scalar("target_layer_ids", bytes([2, 0, 0, 0, 6, 0, 0, 0, 10]))),
    Control("scalars.sliding_window", "off by one", FIRST, _scalar("sliding_window", b"\x3f")),
    Control("scalars.rope_theta", "half of the config's", FIRST, _scalar("rope_theta", np.float32(5e5).tobytes())),
    Control("scalars.rms_eps", "1e-5 for 1e-6", FIRST, _scalar("rms_eps", np.float32(1e-5).tobytes())),
    Control("scalars.embedding_scale", "2 for 1", FIRST, _scalar("embedding_scale", np.float32(2).tobytes())),
)  # fmt: skip
