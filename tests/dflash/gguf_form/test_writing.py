"""Drafts of every form written as GGUF: what is kept to the last bit, what is not and by how much, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize

from draftmill.dflash import names
from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.geometry import Second
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.dflash.package import Package
from draftmill.dflash.rope import Rope
from draftmill.gguf import ggml_library
from draftmill.gguf.checkpoint import read_checkpoint
from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.gguf.metadata import Provenance
from draftmill.outcome import BadConfiguration, Refused
from draftmill.q4nx import q4_k
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.from_gguf import gguf_to_q4nx
from tests.dflash.gguf_form.small import SECOND_SIZES, write_checkpoint, write_draft, write_target
from tests.gguf.convert_models import TINY_VOCAB, change_json
from tests.support.checkpoints import tensor_shapes, to_bf16, write_safetensors
from tests.support.dflash_packages import edit_config, edit_container, tiny

_T = GGMLQuantizationType
PROJECTION = names.layer(0, "self_attn.q_proj.weight")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target") / "llama")


def written(source: Path, target: Path, out: Path, **how):
    with Package.open(source) as package:
        made = write_gguf(package, target, out, **how)
        with GgufDraft.open(out) as draft:
            assert draft.config == replace(package.config, vendor=False)
            for account in made.tensors:
                moved = np.abs(draft.decode(account.name).astype(np.float64) - package.decode(account.name)).max()
                # Codes: the bound is of the factors; both sides round a weight of below 1 to float32 once more.
                assert (moved == 0) == account.exact and moved <= account.largest + 2.0**-24, account
    return made


def by_way(made) -> dict[tuple[str, str, bool | None, bool], int]:
    ways: dict = {}
    for each in made.tensors:
        key = each.source, each.target, each.codes_kept, each.exact
        ways[key] = ways.get(key, 0) + 1
    return ways


def test_a_package_of_q4_1_goes_block_for_block(target, tmp_path) -> None:
    tiny(tmp_path / "package", vocab_size=TINY_VOCAB)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf")
    # 2 layers: 14 projections, 10 norms and fc; 2 of the norms are of the whole draft.
    assert by_way(made) == {
        ("Q4_1", "Q4_1", True, True): 14,
        ("BF16", "F32", None, True): 10,
        ("BF16", "BF16", None, True): 1,
    }
    assert made.file_type == "MOSTLY_Q4_1"
    account = next(each for each in made.tensors if each.name == PROJECTION)
    assert (account.stored, account.units, account.reason) == ("blk.0.attn_q.weight", 512 * 8, "block for block")
    # The gguf package's own reader agrees, byte for byte and key by key.
    reader = GGUFReader(tmp_path / "d.gguf")
    tensor = next(each for each in reader.tensors if each.name == "blk.0.attn_q.weight")
    with Package.open(tmp_path / "package") as package:
        assert np.array_equal(dequantize(tensor.data, _T.Q4_1), package.decode(PROJECTION))
    assert reader.fields["general.file_type"].contents() == 3  # LLAMA_FTYPE_MOSTLY_Q4_1
    assert reader.fields["tokenizer.ggml.mask_token_id"].contents() == 4


def test_rows_padded_for_tiles_lose_the_padding_and_nothing_else(target, tmp_path) -> None:
    tiny(tmp_path / "package", vocab_size=TINY_VOCAB, hidden_size=288, intermediate_size=320)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf")
    assert by_way(made)["Q4_1", "Q4_1", True, True] == 14


def test_factors_below_half_floats_send_a_tensor_to_a_type_that_holds_it(target, tmp_path) -> None:
    def scale_down(tensors) -> None:
        chunks = tensors[f"model.{PROJECTION}"].data.reshape(-1, 5120)
        # One group's scale 2^-40 and minimum 2^-40: no half float, and weights k x 2^-40 that BF16 holds alone.
        chunks[3][2 * 7 : 2 * 7 + 2].view(np.uint16)[...] = 0x2B80
        chunks[3][512 + 2 * 7 : 512 + 2 * 7 + 2].view(np.uint16)[...] = 0x2B80

    tiny(tmp_path / "package", vocab_size=TINY_VOCAB)
    edit_container(tmp_path / "package", scale_down)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf")
    account = next(each for each in made.tensors if each.name == PROJECTION)
    assert (account.target, account.codes_kept, account.exact) == ("F32", None, True)
    assert "1 of 4096 groups" in account.reason
    # Asked to keep codes instead, it does, and says what it costs: at most 15 x 2^-40 + 2^-40.
    made = written(tmp_path / "package", target, tmp_path / "codes.gguf", outtype="codes")
    account = next(each for each in made.tensors if each.name == PROJECTION)
    assert (account.target, account.codes_kept, account.inexact, account.largest) == ("Q4_1", True, 1, 16 * 2.0**-40)


def test_the_narrowest_plain_type_is_taken(target, tmp_path) -> None:
    def to_powers(tensors) -> None:
        chunks = tensors[f"model.{PROJECTION}"].data.reshape(-1, 5120)
        chunks[:, :512].view(np.uint16)[...] = 0x2B80  # scales of 2^-40, so that weights are k x 2^-40
        chunks[:, 512:1024].view(np.uint16)[...] = 0

    tiny(tmp_path / "package", vocab_size=TINY_VOCAB)
    edit_container(tmp_path / "package", to_powers)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf")
    account = next(each for each in made.tensors if each.name == PROJECTION)
    assert (account.target, account.exact) == ("BF16", True)


def six_bit(package: Path, layer: str) -> np.ndarray:
    """Puts llama.cpp's own Q4_K of a tensor into a package, which holds it exactly; returns the GGUF blocks."""
    with Package.open(package) as opened:
        values = opened.decode(layer)
    blocks = ggml_library.load_library().quantize(_T.Q4_K, values.reshape(-1))
    # A container's S and M are bfloat16: cut the half floats to 8 significant bits, that both hold them.
    blocks = np.array(blocks).reshape(len(values), -1, 144)
    blocks[..., :4].view(np.uint16)[...] &= 0xFFF8
    encoding = Encoding(Kind.Q4_K, *values.shape, "flat")
    stored, cost = gguf_to_q4nx(_T.Q4_K, blocks.reshape(len(values), -1), encoding)
    assert cost.inexact == 0

    def put(tensors) -> None:
        tensors[f"model.{layer}"].data[...] = stored.reshape(tensors[f"model.{layer}"].data.shape)

    edit_container(package, put)
    return blocks.reshape(len(values), -1)


def test_q4_k_goes_block_for_block_where_six_bits_hold_its_factors(target, tmp_path) -> None:
    tiny(tmp_path / "package", encoding=Kind.Q4_K, vocab_size=TINY_VOCAB)
    blocks = six_bit(tmp_path / "package", PROJECTION)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf")
    ways = by_way(made)
    assert (ways["Q4_K", "Q4_K", True, True], ways["Q4_K", "F32", None, True]) == (1, 13)
    with GgufDraft.open(tmp_path / "d.gguf") as draft:
        kind, stored = draft.raw(PROJECTION)
        assert kind == _T.Q4_K
        assert np.array_equal(stored, blocks)
    reason = next(each.reason for each in made.tensors if each.target == "F32" and each.source == "Q4_K")
    assert "super-blocks have factors of more than six bits" in reason
    assert "F32 is the narrowest" in reason


def test_q4_k_keeps_its_codes_as_q4_1_when_asked(target, tmp_path) -> None:
    tiny(tmp_path / "package", encoding=Kind.Q4_K, vocab_size=TINY_VOCAB)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf", outtype="codes")
    assert by_way(made)["Q4_K", "Q4_1", True, False] == 14
    with Package.open(tmp_path / "package") as package, GgufDraft.open(tmp_path / "d.gguf") as draft:
        located = package.inventory.by_name[PROJECTION]
        data = package.container.bytes(located.entry.name)
        # Row 33, column 70: nibble 512 + 16 x 70 + 1 // 2 of the first tile of the second row of tiles, odd row high.
        code = data.reshape(-1, 4736)[1][512 + 16 * 70] >> 4
        block = draft.raw(PROJECTION)[1][33].reshape(-1, 20)[70 // 32]
        assert block[4 + 70 % 32 % 16] >> (4 * (70 % 32 // 16)) & 15 == code
    assert q4_k.CHUNK_BYTES == 4736


def test_a_package_of_generation_2_is_carried_whole(target, tmp_path) -> None:
    tiny(tmp_path / "package", 2, vocab_size=TINY_VOCAB + 20, **SECOND_SIZES)
    rows = write_target(tmp_path / "target", vocab_size=TINY_VOCAB + 20)
    made = written(tmp_path / "package", rows, tmp_path / "d.gguf")
    assert {each.stored for each in made.tensors} >= {"selector_predecessor.weight", "blk.1.ffn_conv_base"}
    assert all(each.exact for each in made.tensors)


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16"])
def test_matrices_may_be_asked_for_in_a_plain_type(target, tmp_path, outtype) -> None:
    tiny(tmp_path / "package", vocab_size=TINY_VOCAB)
    made = written(tmp_path / "package", target, tmp_path / "d.gguf", outtype=outtype)
    assert {each.target for each in made.tensors} == {"F32", outtype.upper()}
    assert all(each.exact for each in made.tensors) == (outtype == "f32")


def test_a_gguf_goes_as_it_is_with_its_own_vocabulary_or_the_targets(target, tmp_path) -> None:
    source = write_draft(tmp_path / "draft", outtype="f16")
    with GgufDraft.open(source) as draft:
        kept = write_gguf(draft, None, tmp_path / "kept.gguf")
        given = write_gguf(draft, target, tmp_path / "given.gguf")
    before = read_header(source)
    for made in (kept, given):
        after = read_header(made.path)
        assert standing(after) == standing(before)
        assert [(each.name, each.type) for each in after.tensors.values()] == [
            (each.name, each.type) for each in before.tensors.values()
        ]
        assert all(each.exact for each in made.tensors)


def standing(header: GGUFHeader) -> dict:
    """All keys but those of origin."""
    return {key: value for key, value in header.fields.items() if not key.startswith(("general.", "draftmill."))}


def test_a_targets_gguf_gives_the_same_vocabulary_as_its_folder(tmp_path) -> None:
    folder, file = write_target(tmp_path / "target", hidden_size=256, num_hidden_layers=10), tmp_path / "target.gguf"
    shapes = tensor_shapes(json.loads((folder / "config.json").read_text()))
    write_safetensors(folder / "model.safetensors", {n: to_bf16(np.ones(s, np.float32)) for n, s in shapes.items()})
    convert_native(folder, folder, file, outtype="f16", provenance=Provenance(name="t"))
    with Checkpoint.open(write_checkpoint(tmp_path / "checkpoint")) as source:
        first = read_header(write_gguf(source, folder, tmp_path / "first.gguf").path).fields
        second = read_header(write_gguf(source, file, tmp_path / "second.gguf").path).fields
    assert first == second
    assert first["tokenizer.ggml.tokens"][257:] == ["<|begin|>", "<|end|>", *(f"[PAD{n}]" for n in range(259, 300))]


def test_the_drafts_mask_stands_where_the_tokenizers_own_would(tmp_path) -> None:
    target = write_target(tmp_path / "target")
    change_json(target / "tokenizer_config.json", mask_token="<|begin|>")
    with Checkpoint.open(write_checkpoint(tmp_path / "checkpoint")) as source:
        first = write_gguf(source, target, tmp_path / "first.gguf").path
    with GgufDraft.open(first) as draft:
        again = write_gguf(draft, None, tmp_path / "again.gguf").path
    for path in (first, again):
        fields = read_header(path).fields
        assert fields["tokenizer.ggml.mask_token_id"] == 4 != fields["tokenizer.ggml.bos_token_id"] == 257
    assert list(standing(read_header(first))) == list(standing(read_header(again)))


def refusal(source: Path, target: Path, out: Path, **how) -> list[tuple[str, str]]:
    with Checkpoint.open(source, causal=how.pop("causal", None)) as opened, pytest.raises(Refused) as refused:
        write_gguf(opened, target, out, **how)
    assert not out.exists()
    return [(each.code, each.where) for each in refused.value.refusals]


def test_a_target_of_another_size_is_refused(tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    other = write_target(tmp_path / "target", vocab_size=TINY_VOCAB + 1)
    assert refusal(checkpoint, other, tmp_path / "d.gguf") == [("dflash.vocabulary_size", "checkpoint")]


def test_a_vocabulary_of_another_size_than_the_targets_config_states_is_refused(target, tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    other = write_draft(tmp_path / "other", vocab_size=TINY_VOCAB)
    longer = tmp_path / "longer.gguf"
    writer = GGUFWriter(longer, "gemma4")
    writer.add_token_list([f"<{token}>" for token in range(TINY_VOCAB + 1)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = refusal(checkpoint, target, tmp_path / "d.gguf", vocabulary=longer)
    assert found == [("dflash.target_vocabulary", "llama/config.json:vocab_size")]
    with Checkpoint.open(checkpoint) as opened:
        write_gguf(opened, target, tmp_path / "d.gguf", vocabulary=other)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"hidden_size": 320}, "dflash.target_hidden_size"), ({"num_hidden_layers": 9}, "dflash.target_layers")],
)
def test_a_target_whose_rows_the_draft_does_not_read_is_refused(tmp_path, changes, code) -> None:
    """Its taps are the outputs of layers 1, 5 and 9: ten layers are enough."""
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    other = write_target(tmp_path / "other", **changes)
    assert refusal(checkpoint, other, tmp_path / "d.gguf") == [(code, "other")]
    enough = write_target(tmp_path / "enough", num_hidden_layers=10)
    with Checkpoint.open(checkpoint) as opened:
        write_gguf(opened, enough, tmp_path / "d.gguf")


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda folder: (folder / "config.json").unlink(), "dflash.target_missing"),
        (lambda folder: change_json(folder / "config.json", architectures=["NewForCausalLM"]),
         "dflash.target_architecture"),
        (lambda folder: change_json(folder / "config.json", vocab_size=None), "dflash.target_vocabulary"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "convert.tokenizer_missing"),
    ],
    ids=["no config", "another architecture", "no size", "no tokenizer"],
)  # fmt: skip
def test_what_is_no_target_is_refused(tmp_path, edit, code) -> None:
    checkpoint, target = write_checkpoint(tmp_path / "checkpoint"), write_target(tmp_path / "target")
    edit(target)
    assert [found for found, _ in refusal(checkpoint, target, tmp_path / "d.gguf")] == [code]


def test_a_draft_is_no_target(tmp_path) -> None:
    draft = write_draft(tmp_path / "draft")
    found = refusal(tmp_path / "draft" / "checkpoint", draft, tmp_path / "d.gguf")
    assert found == [("dflash.target_is_draft", "draft.gguf")]


@pytest.mark.parametrize(
    ("changes", "code", "place"),
    [
        ({"max_position_embeddings": None}, "key_missing", "max_position_embeddings"),
        ({"causal": True, "layer_types": (FULL, SLIDING)}, "gguf_causal_full_layers", "is_causal"),
        ({"causal": True, "layer_types": (FULL, FULL), "sliding_window": None}, "gguf_causal_full_layers", "is_causal"),
        (
            {"rope": Rope(1e6, "yarn", {"factor": 4, "original_max_position_embeddings": 1024, "truncate": False})},
            "gguf_rope_scaling",
            "rope_scaling.truncate",
        ),
    ],
)
def test_what_a_gguf_cannot_say_is_refused(target, tmp_path, changes, code, place) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", **changes)
    assert refusal(checkpoint, target, tmp_path / "d.gguf") == [(f"dflash.{code}", f"checkpoint:{place}")]


def test_what_llama_cpp_does_not_heed_is_remarked_on(target, tmp_path) -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 1024, "attention_factor": 1.25}
    checkpoint = write_checkpoint(tmp_path / "checkpoint", rope=Rope(1e6, "yarn", scaling))
    with Checkpoint.open(checkpoint) as source:
        made = write_gguf(source, target, tmp_path / "d.gguf")
    assert [each.where for each in made.remarks] == ["dflash.rope.scaling.yarn_attn_factor"]


def test_a_selector_that_llama_cpp_does_not_load_is_remarked_on(target, tmp_path) -> None:
    # 16 x 17 = 272 scores and ids of a row do not fit into 256 values; 15 x 16 = 240 do.
    for top_k, wheres in ((16, ["dflash.selector_top_k"]), (15, [])):
        checkpoint = write_checkpoint(tmp_path / str(top_k), 2, second=Second(2, 16, 32, top_k))
        with Checkpoint.open(checkpoint) as source:
            made = write_gguf(source, target, tmp_path / f"{top_k}.gguf")
        assert [each.where for each in made.remarks] == wheres


def test_a_mask_row_of_its_own_beside_the_weights_is_refused(tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    (checkpoint / "mask_embedding.pt").write_bytes(b"")
    with pytest.raises(Refused) as refused:
        Checkpoint.open(checkpoint)
    assert [each.code for each in refused.value.refusals] == ["dflash.mask_embedding"]


def test_a_real_that_no_float32_gives_again_is_named(target, tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", output_multiplier=0.19611613513818404)
    with Checkpoint.open(checkpoint) as source:
        made = write_gguf(source, target, tmp_path / "d.gguf")
    assert made.rounded == {"dflash.logit_scale": 0.19611613513818404}


def test_a_value_that_f16_cannot_hold_leaves_no_file(target, tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint", dtype="F32")
    tensor = next(each for each in read_checkpoint(checkpoint) if each.name == PROJECTION)
    with tensor.file.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(np.float32(65520).tobytes())  # rounds to infinity: the largest half float is 65504
    found = refusal(checkpoint, target, tmp_path / "d.gguf", outtype="f16")
    assert found == [("dflash.gguf_not_finite", PROJECTION)]
    assert list(tmp_path.glob(".d.gguf*")) == []
    with tensor.file.open("r+b") as file:
        file.seek(tensor.offset)
        file.write(np.float32(np.nan).tobytes())
    with Checkpoint.open(checkpoint) as source, pytest.raises(Refused, match="damaged") as refused:
        write_gguf(source, target, tmp_path / "d.gguf", outtype="f16")
    assert "65504" not in str(refused.value) and "convert to" not in str(refused.value)


def test_wrong_usage_is_told(target, tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    with Checkpoint.open(checkpoint) as source:
        for how, of, code in (
            ({"outtype": "q8_0"}, target, "dflash.outtype"),
            ({"outtype": "codes"}, target, "dflash.outtype"),
            ({}, None, "dflash.target_needed"),
        ):
            with pytest.raises(BadConfiguration) as error:
                write_gguf(source, of, tmp_path / "d.gguf", **how)
            assert error.value.code == code


def test_the_origin_is_in_the_file_and_the_targets_depth_in_the_mills_own_key(target, tmp_path) -> None:
    checkpoint = write_checkpoint(tmp_path / "checkpoint")
    edit_config(checkpoint, lambda content: content | {"num_target_layers": 12})
    with Checkpoint.open(checkpoint) as source:
        write_gguf(source, target, tmp_path / "d.gguf", provenance=Provenance(name="Tiny-DFlash", repo="me/tiny"))
    fields = read_header(tmp_path / "d.gguf").fields
    assert fields["general.name"] == "Tiny DFlash"
    assert fields["general.source.huggingface.repository"] == "me/tiny"
    assert fields["draftmill.dflash.num_target_layers"] == 12
