"""From one form to another and back: the same bytes wherever nothing is quantised, judged by other readers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from draftmill.dflash.config import read_config
from draftmill.dflash.conversion.account import How
from draftmill.q4nx.encodings import Kind
from tests.dflash.conversion.forms import (
    PADDED,
    SMALL,
    blocks,
    container,
    output,
    safetensors,
    to,
    write_hf,
    write_package,
    write_target,
)
from tests.q4nx import formulae
from tests.support.dflash_packages import edit_container

SECOND = {"output_multiplier": 0.25, "final_logit_softcapping": 20.0, "input_embedding_scale": 16.0}
MIXED = {"num_hidden_layers": 2, "layer_types": ("full_attention", "sliding_attention"), "sliding_window": 9}
DRAFTS: dict[str, tuple[int, dict[str, Any]]] = {
    "generation 1": (1, MIXED),
    "generation 1, rows padded": (1, PADDED),
    "generation 2": (2, SECOND | {"causal": True, "block_size": 5, "mask_token_id": 299}),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("name", DRAFTS)
def test_a_checkpoint_comes_back_from_a_gguf_byte_for_byte(name: str, tmp_path: Path, target: Path) -> None:
    generation, changes = DRAFTS[name]
    source = write_hf(tmp_path / "hf", generation, **changes)
    there = to("gguf", source, tmp_path / "d.gguf", target=target)
    back = to("hf", tmp_path / "d.gguf", tmp_path / "back")
    assert safetensors(tmp_path / "back") == safetensors(source)
    assert read_config(tmp_path / "back") == read_config(source)
    assert there.worst is back.worst is None
    assert {each.how for each in back.tensors} == {How.KEPT}
    assert np.array_equal(output(tmp_path / "d.gguf"), output(source))


@pytest.mark.parametrize("name", DRAFTS)
def test_a_checkpoint_comes_back_from_a_package_of_bfloat16_byte_for_byte(name: str, tmp_path: Path) -> None:
    generation, changes = DRAFTS[name]
    source = write_hf(tmp_path / "hf", generation, **changes)
    there = to("q4nx", source, tmp_path / "p", encoding=Kind.BLOCK_BF16)
    to("hf", tmp_path / "p", tmp_path / "back")
    assert safetensors(tmp_path / "back") == safetensors(source)
    assert read_config(tmp_path / "back") == read_config(source)
    assert {each.how for each in there.tensors} == {How.KEPT}
    # [N/32, K, 32]: element (n, k) at flat (n // 32) K 32 + k 32 + n mod 32.
    label, shape, data = container(tmp_path / "p")["model.layers.0.self_attn.k_proj.weight"]
    stored = np.frombuffer(data, np.uint16)
    plain = np.frombuffer(safetensors(source)["layers.0.self_attn.k_proj.weight"][2], np.uint16).reshape(-1, shape[1])
    assert label == "BF16"
    for n, k in ((0, 0), (31, 5), (32, 0), (77, 200)):
        assert stored[n // 32 * shape[1] * 32 + k * 32 + n % 32] == plain[n, k]


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_other_widths_of_a_checkpoint_are_kept(dtype: str, tmp_path: Path, target: Path) -> None:
    source = write_hf(tmp_path / "hf", dtype=dtype)
    to("gguf", source, tmp_path / "d.gguf", target=target, outtype=dtype.lower())
    account = to("hf", tmp_path / "d.gguf", tmp_path / "back")
    found, given = safetensors(tmp_path / "back"), safetensors(source)
    assert found["fc.weight"] == given["fc.weight"]
    assert account.worst is None
    assert np.array_equal(output(tmp_path / "back"), output(source))


@pytest.mark.parametrize("changes", [SMALL, PADDED], ids=["whole tiles", "rows padded"])
def test_a_package_comes_back_from_a_gguf_with_its_codes(changes: dict[str, Any], tmp_path: Path, target: Path) -> None:
    source = write_package(tmp_path / "p", **changes)
    there = to("gguf", source, tmp_path / "d.gguf", target=target)
    to("q4nx", tmp_path / "d.gguf", tmp_path / "back")
    assert (tmp_path / "back" / "model.q4nx").read_bytes() == (source / "model.q4nx").read_bytes()
    assert {(each.source, each.target) for each in there.tensors if each.name.endswith("_proj.weight")} == {
        ("Q4_1", "Q4_1")
    }
    assert {kind for name, (kind, _) in blocks(tmp_path / "d.gguf").items() if "_q.weight" in name} == {"Q4_1"}
    assert np.array_equal(output(tmp_path / "d.gguf"), output(source))


def six_bits(tensors: dict[str, Any]) -> None:
    """Packs factors as a GGUF's super-blocks have them: the largest u8 63, and S and M four times as large."""
    for stored in tensors.values():
        if stored.dtype == "I8" and stored.shape[-1] == 4736:
            chunks = stored.data.reshape(-1, 4736)
            chunks[:, :512] = np.maximum(1, chunks[:, :512].astype(int) * 63 // 255)
            factors = chunks[:, 4608:].copy().view("<u2")
            chunks[:, 4608:] = np.where(factors & 0x7FFF, factors + 0x100, factors).astype("<u2").view(np.uint8)


@pytest.mark.parametrize("generation", [1, 2])
def test_super_blocks_come_back_from_a_gguf_with_their_codes(generation: int, tmp_path: Path, target: Path) -> None:
    source = write_package(tmp_path / "p", generation, encoding=Kind.Q4_K)
    edit_container(source, six_bits)
    there = to("gguf", source, tmp_path / "d.gguf", target=target)
    to("q4nx", tmp_path / "d.gguf", tmp_path / "back")
    given = {name: (label, data) for name, (label, _, data) in container(source).items()}
    assert {name: (label, data) for name, (label, _, data) in container(tmp_path / "back").items()} == given
    # Plain are fc in generation 1 and the codebooks in 2.
    assert {each.target for each in there.tensors if len(each.shape) == 2} == {"Q4_K", "BF16"}


@pytest.mark.parametrize(("generation", "kind"), [(1, "q4_1"), (1, "q4_k"), (2, "q4_k")])
def test_a_package_is_decoded_to_a_checkpoint_as_its_published_layout_says(
    generation: int, kind: str, tmp_path: Path
) -> None:
    source = write_package(tmp_path / "p", generation, encoding=Kind(kind))
    account = to("hf", source, tmp_path / "hf")
    name = "layers.0.self_attn.k_proj.weight"
    label, shape, data = safetensors(tmp_path / "hf")[name]
    expected = formulae.matrix(kind, container(source)[f"model.{name}"][2], *shape)
    assert label == "F32"
    assert np.frombuffer(data, np.float32).tobytes() == expected.tobytes()
    assert {each.how for each in account.tensors if each.source.startswith("Q")} == {How.DECODED}
    assert np.array_equal(output(tmp_path / "hf"), output(source))


def test_a_package_whose_weights_are_bfloat16_is_decoded_to_bfloat16(tmp_path: Path) -> None:
    """Scales that are powers of two and minimums of -8 scales: code x scale + minimum has four significant bits."""

    def simple(tensors: dict[str, Any]) -> None:
        for stored in tensors.values():
            if stored.dtype == "I8":
                chunks = stored.data.reshape(-1, 5120)
                chunks[:, :512] = np.full(256, 0x3C00, "<u2").view(np.uint8)  # 2^-7
                chunks[:, 512:1024] = np.full(256, 0xBD80, "<u2").view(np.uint8)  # -2^-4

    source = write_package(tmp_path / "p")
    edit_container(source, simple)
    to("hf", source, tmp_path / "hf")
    assert {label for label, _, _ in safetensors(tmp_path / "hf").values()} == {"BF16"}
    assert np.array_equal(output(tmp_path / "hf"), output(source))


def test_q4_k_becomes_q4_1_with_its_codes_where_that_is_asked(tmp_path: Path) -> None:
    source = write_package(tmp_path / "p", encoding=Kind.Q4_K)
    account = to("q4nx", source, tmp_path / "q", encoding=Kind.Q4_1)
    name = "model.layers.0.self_attn.k_proj.weight"
    given, found = (np.frombuffer(container(each)[name][2], np.uint8) for each in (source, tmp_path / "q"))
    given, found = given.reshape(-1, 4736), found.reshape(-1, 5120)
    # q4_1[1024 + 2048 h + 8 c + j] = Q4_K[512 + 16 c + 8 h + j]
    codes = given[:, 512:4608].reshape(-1, 256, 2, 8).swapaxes(1, 2)
    assert np.array_equal(found[:, 1024:].reshape(-1, 2, 256, 8), codes)
    of = {each.name: each for each in account.tensors}[name.removeprefix("model.")]
    assert of.how == How.CODES_KEPT
    assert 0 < (of.relative_rms or 0) < 0.01


def test_half_floats_of_anybodys_gguf_are_rounded_and_its_codes_kept(tmp_path: Path, target: Path) -> None:
    """An eleventh significant bit in every scale, as llama-quantize has them: a bfloat16 has eight."""
    source = write_package(tmp_path / "p")
    to("gguf", source, tmp_path / "d.gguf", target=target)
    file = GGUFReader(tmp_path / "d.gguf", "r+")
    (tensor,) = (each for each in file.tensors if each.name == "blk.0.attn_k.weight")
    tensor.data.reshape(-1, 20)[:, 0] ^= 1
    file.data.flush()
    before = container(source)["model.layers.0.self_attn.k_proj.weight"][2]
    account = to("q4nx", tmp_path / "d.gguf", tmp_path / "back")
    # The nearest bfloat16 is the one that was there before.
    assert container(tmp_path / "back")["model.layers.0.self_attn.k_proj.weight"][2] == before
    of = {each.name: each for each in account.tensors}
    changed = of.pop("layers.0.self_attn.k_proj.weight")
    assert (changed.source, changed.target, changed.how) == ("Q4_1", "Q4_1", How.CODES_KEPT)
    # Scales of weights of 0.02 stay below 2^-6, where a half float's last bit is at most 2^-17, times a code up to 15.
    assert 0 < changed.largest <= 15 * 2**-17
    assert {each.how for each in of.values()} == {How.KEPT}
