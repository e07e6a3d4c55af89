"""A GGUF draft opened: its tensors by the mill's names, as floats and as stored, and what is wrong with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from typer.testing import CliRunner

from draftmill.cli.dflash import app
from draftmill.dflash import names
from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.forward import Draft
from draftmill.dflash.gguf_form.draft import GgufDraft, _check
from draftmill.dflash.inventory import expected_tensors
from draftmill.gguf.header import map_tensor, read_header
from draftmill.intake.findings import Findings
from draftmill.outcome import Refused
from flows.demo.edited_gguf import Made, encode, values, write_edited
from tests.dflash.gguf_form.small import SECOND_SIZES, write_draft
from tests.support.mutants import mutate

_T = GGMLQuantizationType


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Generation -> a draft of it in BF16; its checkpoint lies beside it."""
    folder = tmp_path_factory.mktemp("drafts")
    return {1: write_draft(folder / "one"), 2: write_draft(folder / "two", 2, **SECOND_SIZES)}


def rewritten(source: Path, out: Path, kinds: dict[str, _T] | None = None, rename: dict | None = None) -> Path:
    """With some tensors quantised to other types, renamed, or (None) left out."""
    header, made = read_header(source), []
    for name, tensor in header.tensors.items():
        new, kind = (rename or {}).get(name, name), (kinds or {}).get(name, tensor.type)
        raw = np.asarray(map_tensor(source, tensor))
        if kind != tensor.type:
            raw = encode(values(source, header, name), kind)
        if new is not None:
            made.append(Made(new, tensor.shape, kind, lambda raw=raw: raw))
    write_edited(header, out, made, {})
    return out


@pytest.mark.parametrize("generation", [1, 2])
def test_tensors_and_forward_are_the_checkpoints(drafts, generation) -> None:
    path = drafts[generation]
    checkpoint = path.parent / "checkpoint"
    with GgufDraft.open(path) as draft, Checkpoint.open(checkpoint) as source:
        assert draft.tensors.keys() == source.tensors.keys()
        for name in source.tensors:
            assert np.array_equal(draft.decode(name), source.decode(name)), name
        config = source.config
    rng = np.random.default_rng(0)
    features = rng.standard_normal((5, 3 * config.hidden_size), np.float32)
    block = rng.standard_normal((config.block_size, config.hidden_size), np.float32)
    with Draft.open(path) as ours, Draft.open(checkpoint) as theirs:
        hidden = ours.forward(features, block)
        assert np.array_equal(hidden, theirs.forward(features, block))
        logits = rng.standard_normal((config.block_size, config.vocab_size), np.float32)
        assert np.array_equal(ours.walk(hidden, logits, 7), theirs.walk(hidden, logits, 7))


def test_rows_of_a_codebook_are_read_alone(drafts) -> None:
    with GgufDraft.open(drafts[2]) as draft:
        rows = np.array([299, 0, 17])
        whole = draft.decode(names.SUCCESSOR)
        assert np.array_equal(draft.decode_rows(names.SUCCESSOR, rows), whole[rows])
        assert np.array_equal(draft.tensors[names.SUCCESSOR][5:9], whole[5:9])
        assert np.array_equal(draft.tensors[names.FINAL_NORM][0:256], draft.decode(names.FINAL_NORM))
        for rows in ([300], [-1]):
            with pytest.raises(ValueError, match="rows must lie"):
                draft.decode_rows(names.SUCCESSOR, np.array(rows))
        with pytest.raises(ValueError, match="no matrix"):
            draft.decode_rows(names.FINAL_NORM, np.array([0]))


def test_quantised_tensors_are_read_as_the_gguf_package_reads_them_and_given_raw(drafts, tmp_path) -> None:
    kinds = {"blk.0.attn_q.weight": _T.Q8_0, "blk.1.ffn_up.weight": _T.Q4_1, "fc.weight": _T.F16}
    path = rewritten(drafts[1], tmp_path / "q.gguf", kinds)
    with GgufDraft.open(path) as draft, GgufDraft.open(drafts[1]) as before:
        for name, kind, row in (
            (names.layer(0, "self_attn.q_proj.weight"), _T.Q8_0, 256 // 32 * 34),
            (names.layer(1, "mlp.up_proj.weight"), _T.Q4_1, 256 // 32 * 20),
            (names.FUSION, _T.F16, 2 * 768),
        ):
            weights = before.decode(name)
            found, stored = draft.raw(name)
            assert (found, stored.shape) == (kind, (len(weights), row))
            assert np.array_equal(stored.reshape(-1), encode(weights, kind))
            assert np.array_equal(draft.decode(name), dequantize(stored, kind))
            assert 0 < np.abs(draft.decode(name) - weights).max() < np.abs(weights).max() / 8
        assert [(each.met, each.count) for each in draft.variants] == [
            ("BF16", 12), ("F16", 1), ("F32", 10), ("Q4_1", 1), ("Q8_0", 1)
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("rename", "code", "where"),
    [
        ({"blk.1.ffn_gate.weight": None}, "tensor_missing", "blk.1.ffn_gate.weight"),
        ({"enc.output_norm.weight": None}, "tensor_missing", "enc.output_norm.weight"),
    ],
)
def test_a_tensor_that_is_not_there_is_refused_at_its_gguf_name(drafts, tmp_path, rename, code, where) -> None:
    path = rewritten(drafts[1], tmp_path / "d.gguf", rename=rename)
    with pytest.raises(Refused) as refused:
        GgufDraft.open(path)
    assert [(each.code, each.where) for each in refused.value.refusals] == [(f"dflash.{code}", f"d.gguf:{where}")]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("token_embd.weight", "an embedding table of its own"),
        ("output.weight", "a head of its own"),
        ("d2t", "a map between vocabularies"),
        ("blk.0.attn_sinks.weight", "attention sinks"),
        ("markov_w1.weight", "a Markov head"),
        ("blk.0.attn_q.bias", "biases"),
        ("blk.7.attn_q.weight", "what it does is unknown"),
    ],
)
def test_a_tensor_too_many_is_refused_and_said_what_it_is(drafts, tmp_path, name, says) -> None:
    path = rewritten(drafts[1], tmp_path / "d.gguf", rename={"blk.0.attn_v.weight": name})
    with pytest.raises(Refused) as refused:
        GgufDraft.open(path)
    first, second = refused.value.refusals
    assert (first.code, first.where) == ("dflash.tensor_missing", "d.gguf:blk.0.attn_v.weight")
    assert (second.code, second.where) == ("dflash.tensor_unexplained", f"d.gguf:{name}")
    assert says in second.sentence


def test_another_shape_and_a_type_that_nobody_here_decodes_are_refused(drafts) -> None:
    header = read_header(drafts[1])
    with GgufDraft.open(drafts[1]) as draft:
        expected = {each.name: each for each in expected_tensors(draft.config, scalars=False)}
    tensor = header.tensors["fc.weight"]
    for changed, code in (
        (replace(tensor, shape=(256, 769)), "dflash.shape_unexpected"),
        (replace(tensor, type=_T.Q8_1), "dflash.gguf_type_unreadable"),
    ):
        findings = Findings()
        _check(changed, "fc.weight", expected[names.FUSION], "d.gguf", findings)
        assert [each.code for each in findings.refusals] == [code]


def test_the_command_line_runs_a_gguf_as_it_runs_a_package(drafts, tmp_path) -> None:
    rng = np.random.default_rng(0)
    given = {"features": rng.standard_normal((5, 768), np.float32), "block": rng.standard_normal((8, 256), np.float32)}
    for name, array in given.items():
        np.save(tmp_path / f"{name}.npy", array)
    words = ["forward", str(drafts[1]), "--out", str(tmp_path / "h.npy")]
    for name in given:
        words += [f"--{name}", str(tmp_path / f"{name}.npy")]
    assert CliRunner().invoke(app, words).exit_code == 0
    with Draft.open(drafts[1]) as draft:
        assert np.array_equal(np.load(tmp_path / "h.npy"), draft.forward(given["features"], given["block"]))
    words[1] = str(tmp_path / "block.npy")
    refused = CliRunner().invoke(app, [*words, "--json"])
    assert refused.exit_code == 1
    assert "gguf.not_gguf" in refused.output


def test_damaged_drafts_are_refused_with_reasons_or_read(tmp_path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1}
    sizes |= {"num_key_value_heads": 1, "head_dim": 32}
    whole = write_draft(tmp_path / "draft", **sizes).read_bytes()
    reach = read_header(tmp_path / "draft" / "draft.gguf").data_offset
    refused = 0
    for mutant in mutate(whole, 400, reach):
        (tmp_path / "mutant.gguf").write_bytes(mutant)
        try:
            with GgufDraft.open(tmp_path / "mutant.gguf") as draft:
                draft.decode(names.FUSION)
        except Refused as error:
            assert all(each.code and each.where and each.sentence for each in error.refusals)
            refused += 1
    assert refused > 200
