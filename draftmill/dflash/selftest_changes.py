"""Small changes of a sound package, each of one thing: what the self-test's controls are made of."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.dflash.package import CONTAINER, MANIFEST
from draftmill.dflash.selftest_specimen import Tensors, bytes_of, edit_config, edit_tensors, sign
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode
from draftmill.q4nx.tiles import to_bf16
from draftmill.q4nx.writing import Stored

Change = Callable[[Path], object]


def in_config(change: Callable[[dict[str, Any]], object]) -> Change:
    return lambda folder: edit_config(folder, change)


def setting(path: str, value: Any) -> Change:
    """Sets a key, of an inner object where the path has a dot."""
    section, _, name = path.rpartition(".")
    return in_config(lambda content: (content[section] if section else content).update({name: value}))


def in_tensors(change: Callable[[Tensors], object]) -> Change:
    return lambda folder: edit_tensors(folder, change)


def cut(name: str, shape: tuple[int, ...], nbytes: int) -> Change:
    """Gives a tensor a smaller shape and its first bytes."""

    def change(tensors: Tensors) -> None:
        tensors[name] = replace(tensors[name], shape=shape, data=bytes_of(tensors[name])[:nbytes])

    return in_tensors(change)


def tile_less(name: str, axis: int = 0) -> Change:
    """Takes the last tile, of a grid the last row of tiles, away."""

    def change(tensors: Tensors) -> None:
        shape = list(tensors[name].shape)
        shape[axis] -= 1
        tensors[name] = replace(
            tensors[name], shape=tuple(shape), data=bytes_of(tensors[name])[: int(np.prod(shape))].copy()
        )

    return in_tensors(change)


def poke(name: str, offset: int, value: bytes) -> Change:
    """Writes bytes into a tensor."""

    def change(tensors: Tensors) -> None:
        bytes_of(tensors[name])[offset : offset + len(value)] = np.frombuffer(value, np.uint8)

    return in_tensors(change)


def poked(name: str, values: dict[int, bytes]) -> Change:
    """Writes bytes into a tensor at several places."""

    def change(tensors: Tensors) -> None:
        for offset, value in values.items():
            bytes_of(tensors[name])[offset : offset + len(value)] = np.frombuffer(value, np.uint8)

    return in_tensors(change)


def zeroed(name: str) -> Change:
    return in_tensors(lambda tensors: bytes_of(tensors[name]).fill(0))


def relabelled(name: str, label: str) -> Change:
    return in_tensors(lambda tensors: tensors.update({name: replace(tensors[name], dtype=label)}))


def reshaped(name: str, shape: tuple[int, ...]) -> Change:
    """Declares another shape for the same bytes."""
    return in_tensors(lambda tensors: tensors.update({name: replace(tensors[name], shape=shape)}))


def added(name: str, like: str) -> Change:
    """A further tensor, equal to another."""
    return in_tensors(lambda tensors: tensors.update({name: tensors[like]}))


def renamed(name: str, other: str) -> Change:
    return in_tensors(lambda tensors: tensors.update({other: tensors.pop(name)}))


def half_float_weights(name: str) -> Change:
    """Replaces a tensor by half floats of weights, byte for byte as many."""

    def change(tensors: Tensors) -> None:
        data = bytes_of(tensors[name])
        weights = np.random.default_rng(1).normal(0, 0.02, data.size // 2).astype("<f2")
        data[:] = weights.view(np.uint8)

    return in_tensors(change)


def as_half_floats(name: str) -> Change:
    """Stores the values of a bfloat16 tensor as half floats, under the same label."""

    def change(tensors: Tensors) -> None:
        data = bytes_of(tensors[name])
        values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        data[:] = values.astype("<f2").view(np.uint8)

    return in_tensors(change)


def scaled_minimums(name: str, factor: float) -> Change:
    """Scales the minimums of a q4_1 tensor."""

    def change(tensors: Tensors) -> None:
        plane = bytes_of(tensors[name]).reshape(-1, 5120)[:, 512:1024]
        values = (plane.copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
        plane[:] = to_bf16(np.ascontiguousarray(values * np.float32(factor))).view(np.uint8)

    return in_tensors(change)


def halved_q4_k_minimums(name: str) -> Change:
    """Halves the row factors of the minimums: one less in the exponent."""

    def change(tensors: Tensors) -> None:
        plane = bytes_of(tensors[name]).reshape(-1, 4736)[:, 4672:4736]
        plane[:] = (plane.copy().view("<u2") - np.uint16(0x80)).view(np.uint8)

    return in_tensors(change)


def in_encoding(name: str, kind: Kind, rows: int, columns: int) -> Change:
    """Replaces a matrix by weights in another encoding, in the form of tiles it had."""

    def change(tensors: Tensors) -> None:
        form: Any = "grid" if len(tensors[name].shape) == 3 else "flat"
        encoding = Encoding(kind, rows, columns, form)
        weights = np.random.default_rng(1).normal(0, 0.02, (rows, columns)).astype(np.float32)
        tensors[name] = Stored("I8", encoding.shape, encode(encoding, weights))

    return in_tensors(change)


def row_major(name: str, rows: int, columns: int) -> Change:
    def change(tensors: Tensors) -> None:
        stored = bytes_of(tensors[name]).view("<u2")
        stored[:] = stored.reshape(rows // 32, columns, 32).swapaxes(1, 2).reshape(-1)

    return in_tensors(change)


def in_blocks(name: str, rows: int, columns: int, height: int) -> Change:
    """Stores a fusion matrix in blocks of another height than 32; all rows in one are column-major."""

    def change(tensors: Tensors) -> None:
        stored = bytes_of(tensors[name]).view("<u2")
        matrix = stored.reshape(rows // 32, columns, 32).swapaxes(1, 2).reshape(rows, columns)
        stored[:] = matrix.reshape(rows // height, height, columns).swapaxes(1, 2).reshape(-1)

    return in_tensors(change)


def scalar(name: str, stored: bytes) -> Change:
    return poke(f"dflash.{name}", 0, stored)


def in_manifest(change: Callable[[str], str]) -> Change:
    def spoil(folder: Path) -> None:
        path = folder / MANIFEST
        path.write_text(change(path.read_text()))

    return spoil


def in_another_manifest(text: str) -> Change:
    return lambda folder: (folder / "SHA256SUMS").write_text(text)


def three_key_heads(folder: Path) -> None:
    """In the config and in both layers: 192 rows of 256, of which a tile has 32."""
    edit_config(folder, lambda content: content.update({"num_key_value_heads": 3}))
    for layer in range(2):
        for part in "kv":
            cut(f"model.layers.{layer}.self_attn.{part}_proj.weight", (6, 5120), 6 * 5120)(folder)


def link_config_out(folder: Path) -> None:
    outside = folder.with_name(folder.name + ".config.json")
    (folder / "config.json").rename(outside)
    (folder / "config.json").symlink_to(outside)


def put_a_pipe(folder: Path) -> None:
    (folder / CONTAINER).unlink()
    os.mkfifo(folder / CONTAINER)


def break_json(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text() + "}")
    sign(folder)


def grow(folder: Path) -> None:
    with (folder / CONTAINER).open("ab") as file:
        file.write(b"\0")


def nothing(folder: Path) -> None:
    pass


def shift_ids(folder: Path) -> None:
    _set_ids(folder, [2, 6, 10])


def _set_ids(folder: Path, ids: list[int]) -> None:
    """In the config and in the container."""
    edit_config(folder, lambda content: content["dflash_config"].update({"target_layer_ids": ids}))
    scalar("target_layer_ids", np.array(ids, "<i4").tobytes())(folder)


def too_deep(folder: Path) -> None:
    _set_ids(folder, [1, 5, 12])
