"""Packages with the geometries of two published drafts, made quickly out of made-up weights: for the benchmarks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from draftmill.dflash.config import DraftConfig, Second
from draftmill.dflash.config_kinds import SLIDING
from draftmill.dflash.inventory import Expected, expected_tensors
from draftmill.dflash.layout import Layout
from draftmill.dflash.package import MANIFEST
from draftmill.dflash.package_tensors import stored_scalars
from draftmill.dflash.rope import Rope
from draftmill.dflash.storage import PUBLISHED
from draftmill.dflash.synthetic import synthetic_config
from draftmill.dflash.vendor_config import vendor_config
from draftmill.digest import sha256_file
from draftmill.q4nx import writing
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import encode
from draftmill.q4nx.tiles import COLUMNS, ROWS, to_bf16

CONFIGS: dict[str, DraftConfig] = {
    "bolt": synthetic_config(
        1, hidden_size=2560, intermediate_size=5120, num_hidden_layers=5, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, vocab_size=262144, target_layer_ids=(5, 11, 17, 23, 35), num_target_layers=42,
        sliding_window=1024, layer_types=(SLIDING,) * 5,
    ),
    "27b": synthetic_config(
        2, hidden_size=5120, intermediate_size=17408, num_hidden_layers=5, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=248320, mask_token_id=248070, rope=Rope(1e7),
        target_layer_ids=(5, 19, 33, 47, 61), num_target_layers=64, sliding_window=2048, layer_types=(SLIDING,) * 5,
        second=Second(2, 16, 256, 16),
    ),
}  # fmt: skip


def content(config: DraftConfig, each: Expected, seed: int) -> writing.Stored:
    """Normal weights whose columns differ in size. Tiles are those of one band of 32 rows, quantised, with the columns
    of their codes turned: as many different ones as are needed, made quickly."""
    rng = np.random.default_rng(seed)
    if len(each.shape) != 2:
        values = rng.normal(1, 0.2, each.shape).astype(np.float32)
        return writing.Stored("BF16", each.shape, lambda: to_bf16(values))
    encoding = Layout().encoding(config.generation, each, PUBLISHED[config.generation])

    def data() -> np.ndarray:
        rows, columns = each.shape
        spread = 0.02 * np.exp(rng.normal(0, 0.3, columns)).astype(np.float32)
        rows = ROWS if encoding.packed else rows
        values = rng.standard_normal((rows, columns), np.float32) * spread
        stored = encode(replace(encoding, rows=rows), values)
        return turned(encoding, stored) if encoding.packed else stored

    return writing.Stored(encoding.dtype, encoding.shape, data)


def turned(encoding: Encoding, band: np.ndarray) -> np.ndarray:
    """The tiles of a band over and over, each time with its two halves of 16 rows turned by other columns."""
    begin, end = (1024, 5120) if encoding.kind == Kind.Q4_1 else (512, 4608)
    number = np.arange(encoding.tile_rows * encoding.tile_columns)
    tiles = band.reshape(encoding.tile_columns, -1)[number % encoding.tile_columns]
    codes = tiles[:, begin:end].view("<u8")
    first = encoding.kind == Kind.Q4_1
    halves = (codes.reshape(-1, 2, COLUMNS) if first else codes.reshape(-1, COLUMNS, 2).swapaxes(1, 2)).copy()
    for half, turns in enumerate((number, number // COLUMNS)):
        columns = (np.arange(COLUMNS) + turns[:, None]) % COLUMNS
        halves[:, half] = np.take_along_axis(halves[:, half], columns, 1)
    codes[:] = (halves if first else halves.swapaxes(1, 2)).reshape(codes.shape)
    return tiles


def make(folder: Path, config: DraftConfig) -> None:
    folder.mkdir()
    layout = Layout()
    wanted = expected_tensors(config, scalars=False)
    tensors = {layout.spelled(each.name): content(config, each, seed) for seed, each in enumerate(wanted)}
    if config.generation == 1:
        tensors |= stored_scalars(config, layout)
    writing.write(folder / "model.q4nx", tensors)
    (folder / "config.json").write_text(json.dumps(vendor_config(config)))
    names = ("config.json", "model.q4nx")
    (folder / MANIFEST).write_text("".join(f"{sha256_file(folder / name)}  {name}\n" for name in names))
