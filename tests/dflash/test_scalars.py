"""Scalars under every label: written, read and held against the config."""

import numpy as np
import pytest

from draftmill.dflash.config import DraftConfig, parse_config
from draftmill.dflash.scalars import as_stored, check_scalar, read_scalar, scalar_values
from draftmill.dflash.synthetic import synthetic_config
from draftmill.dflash.vendor_config import vendor_config
from draftmill.outcome import Refused
from draftmill.q4nx.header import Entry
from draftmill.q4nx.scalars import number_bytes

CONFIG = synthetic_config(1, input_embedding_scale=50.596)
WHOLE = ["I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F32", "F64", "BF16"]


def entry(dtype: str, shape: tuple[int, ...], size: int) -> Entry:
    return Entry("dflash.x", dtype, shape, 0, size)


def check(name: str, dtype: str, data: np.ndarray, shape: tuple[int, ...] = (1,)) -> str | None:
    refusal = check_scalar(name, entry(dtype, shape, data.nbytes), data, CONFIG, "model.q4nx")
    return refusal.code if refusal else None


def test_the_six_are_the_configs() -> None:
    assert scalar_values(CONFIG) == {
        "block_size": (8,),
        "target_layer_ids": (1, 5, 9),
        "sliding_window": (64,),
        "rope_theta": (1e6,),
        "rms_eps": (1e-6,),
        "embedding_scale": (50.596,),
    }
    no_window = synthetic_config(1, layer_types=("full_attention",) * 2, sliding_window=None)
    assert scalar_values(no_window)["sliding_window"] == (0,)


@pytest.mark.parametrize("dtype", WHOLE)
def test_a_whole_number_is_equal_under_every_label_and_off_by_one_under_none(dtype: str) -> None:
    assert check("block_size", dtype, number_bytes(dtype, (8,))) is None
    assert check("block_size", dtype, number_bytes(dtype, (8,)), ()) is None
    assert check("block_size", dtype, number_bytes(dtype, (9,))) == "dflash.scalar_differs"
    assert check("target_layer_ids", dtype, number_bytes(dtype, (1, 5, 9)), (3,)) is None
    assert check("target_layer_ids", dtype, number_bytes(dtype, (1, 9, 5)), (3,)) == "dflash.scalar_differs"


@pytest.mark.parametrize("dtype", ["F32", "F64", "BF16"])
def test_a_float_is_equal_when_it_is_the_configs_rounded_to_its_label(dtype: str) -> None:
    assert check("rms_eps", dtype, number_bytes(dtype, (1e-6,))) is None
    assert check("embedding_scale", dtype, number_bytes(dtype, (50.596,))) is None
    last_bit = number_bytes(dtype, (1e-6,)).copy()
    last_bit[0] ^= 1
    assert check("rms_eps", dtype, last_bit) == "dflash.scalar_differs"


def test_what_a_label_cannot_hold_is_different_and_not_written() -> None:
    assert as_stored(1e-6, "I32") is None
    assert as_stored(300, "U8") is None
    assert as_stored(1e39, "F32") is None
    assert as_stored(3.39e38, "BF16") == float(np.float32(2.0**127 * (2 - 2**-7)))
    assert as_stored(np.finfo(np.float32).max.item(), "BF16") is None
    assert check("rms_eps", "I32", np.zeros(4, np.uint8)) == "dflash.scalar_differs"
    assert as_stored(1e6, "F16") is None


def test_not_a_number_is_different_and_can_be_reported() -> None:
    refusal = check_scalar(
        "rms_eps", entry("F32", (1,), 4), np.array([np.nan], "<f4").view(np.uint8), CONFIG, "model.q4nx"
    )
    assert refusal is not None
    assert (refusal.code, refusal.measured, refusal.expected) == ("dflash.scalar_differs", ["nan"], [1e-6])


def sentence(name: str, stored: tuple[float, ...], config: DraftConfig) -> str:
    data = number_bytes("F32", stored)
    refusal = check_scalar(name, entry("F32", (len(stored),), data.nbytes), data, config, "model.q4nx")
    assert refusal is not None
    return refusal.sentence


def test_what_differs_is_said_as_it_is() -> None:
    """A scale that the config does not state was not changed in it; ids have a direction."""
    stated = parse_config(vendor_config(CONFIG))
    unstated = {name: value for name, value in vendor_config(CONFIG)["dflash_config"].items() if "scale" not in name}
    silent = parse_config(vendor_config(CONFIG) | {"dflash_config": unstated})
    assert "one of them was changed" in sentence("embedding_scale", (2.0,), stated)
    said = sentence("embedding_scale", (50.596,), silent)
    assert "states no input_embedding_scale, which means 1" in said
    assert "changed" not in said
    no_window = synthetic_config(1, layer_types=("full_attention",) * 2, sliding_window=None)
    assert "no layer slides" in sentence("sliding_window", (64,), parse_config(vendor_config(no_window)))
    assert "Each of the container's is one more" in sentence("target_layer_ids", (2, 6, 10), stated)
    assert "Each of the config's is one more" in sentence("target_layer_ids", (0, 4, 8), stated)
    assert "one more" not in sentence("target_layer_ids", (2, 6, 9), stated)


@pytest.mark.parametrize(
    ("dtype", "shape", "code"),
    [
        ("BOOL", (1,), "q4nx.dtype_unexpected"),
        ("Q4NX", (1,), "q4nx.dtype_unexpected"),
        ("I32", (2,), "dflash.scalar_shape"),
        ("I32", (1, 1), "dflash.scalar_shape"),
        ("I32", (0,), "dflash.scalar_shape"),
    ],
)
def test_labels_and_shapes_of_no_scalar_are_refused(dtype: str, shape: tuple[int, ...], code: str) -> None:
    with pytest.raises(Refused) as refused:
        read_scalar(entry(dtype, shape, 8), np.zeros(8, np.uint8), 1)
    assert refused.value.code == code
