"""Any two of GGUF, tokenizer.json and folder, held against each other."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftmill.gguf.header import read_header
from draftmill.outcome import Refused
from draftmill.tokenizers.ggml import read_gguf
from draftmill.tokenizers.sources import as_gguf, compare_pair, pair_sources, read_both, read_source
from flows.demo.smollm2 import write_tokenizer as write_smollm2_tokenizer
from tests.support import pairs
from tests.support.inputs import qwen3_tokenizer, smollm2_gguf
from tests.tokenizers import synthetic as s
from tests.tokenizers.test_ggml import CONTROL, NORMAL, UNUSED, USER, write_gguf


@pytest.fixture(scope="module")
def smollm2_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2")
    write_smollm2_tokenizer(read_header(smollm2_gguf()).fields, folder)
    return folder


def codes(target: Path, draft: Path) -> list[str]:
    return [refusal.code for refusal in compare_pair(target, draft).refusals]


def test_a_model_pairs_with_itself_in_every_form(smollm2_folder):
    file = smollm2_folder / "tokenizer.json"
    # With the number of sides whose rows nothing tells.
    forms = [
        (smollm2_gguf(), smollm2_gguf(), 0),
        (smollm2_gguf(), smollm2_folder, 1),
        (file, smollm2_gguf(), 1),
        (file, smollm2_folder, 2),
    ]
    for target, draft, unknown in forms:
        pairing = compare_pair(target, draft)
        assert pairing.refusals == ()
        assert ["rows" in remark for remark in pairing.remarks] == [True] * unknown


def test_qwen3_and_smollm2_do_not_pair_in_any_form(smollm2_folder):
    # "&" is the sixth byte-level token of Qwen3's vocab.json; SmolLM2's rows are known from the GGUF only.
    text = ("tokenizer.pair_text", "id 5", "&", "<file_sep>")
    size = ("tokenizer.pair_size", "token count", 151669, "49152 +- 128")
    for target, expected in ((smollm2_gguf(), [size, text]), (smollm2_folder, [text])):
        refusals = compare_pair(target, qwen3_tokenizer()).refusals
        assert [(each.code, each.where, each.measured, each.expected) for each in refusals] == expected


def test_a_converted_qwen3_says_what_its_tokenizer_json_would_become():
    target, draft = read_both(pairs.qwen3_draft(), qwen3_tokenizer())
    ours, theirs = as_gguf(target, draft)
    assert (theirs.pre, theirs.size) == (ours.pre, ours.size) == ("qwen2", 151936)
    assert theirs.stated["token_types"] == ours.stated["token_types"]
    assert pair_sources(target, draft).refusals == ()


def test_two_tokenizers_of_unknown_rows_are_taken_to_have_as_many(tmp_path):
    one = s.write_tokenizer(tmp_path / "one", {12: "<x>"}, {"add_bos_token": False})
    other = s.write_tokenizer(tmp_path / "other", {12: "<x>", 300: "<y>"}, {"add_bos_token": False})
    # Nothing says that the first ends at 13 rows, where the second has a token beyond 128 more.
    pairing = compare_pair(one, other)
    assert [(r.code, r.where, r.expected) for r in pairing.refusals] == [("tokenizer.pair_text", "id 300", "[PAD300]")]
    assert sum("taken as 301" in remark for remark in pairing.remarks) == 2
    (one / "config.json").write_text('{"vocab_size": 13}')
    assert codes(one, other) == ["tokenizer.pair_size"]
    assert sum("taken as 301" in remark for remark in compare_pair(one, other).remarks) == 1


def test_rows_come_from_the_config_beside_it(tmp_path):
    folder = s.write_tokenizer(tmp_path, {12: "<x>"})
    beside = {"text_config": {"vocab_size": 65}}
    for config, rows in (({"vocab_size": 64}, 64), (beside, 65), (beside | {"vocab_size": None}, 65), ({}, None)):
        (folder / "config.json").write_text(json.dumps(config))
        assert read_source(folder).rows == rows
    for vocab_size in (12, -1, True, "64", 1 << 40):
        (folder / "config.json").write_text(json.dumps({"vocab_size": vocab_size}))
        with pytest.raises(Refused) as refused:
            read_source(folder)
        assert refused.value.code == "tokenizer.rows"


def test_token_types_are_those_that_the_converter_writes(tmp_path):
    folder = s.write_tokenizer(tmp_path, {10: "<s>", 11: "<|im|>", 12: "<think>"}, {"add_bos_token": False})
    # "<s>" is special; "<|im|>" is not, but llama.cpp's converter goes by its looks; "<think>" is neither.
    document = json.loads((folder / "tokenizer.json").read_text())
    for added in document["added_tokens"]:
        added["special"] = added["content"] == "<s>"
    (folder / "tokenizer.json").write_text(json.dumps(document))
    tokens = [*"abcdefghij", "<s>", "<|im|>", "<think>", "[PAD13]"]
    types = [NORMAL] * 10 + [CONTROL, CONTROL, USER, UNUSED]
    converted = write_gguf(tmp_path / "v.gguf", tokens, types, add_bos_token=False)
    assert not [remark for remark in compare_pair(converted, folder).remarks if "rows" not in remark]
    types[11] = USER
    other = write_gguf(tmp_path / "other.gguf", tokens, types, add_bos_token=False)
    (remark,) = [remark for remark in compare_pair(other, folder).remarks if "rows" not in remark]
    assert remark == ("token types differ, which the runtime ignores: at id 11 target 'user-defined', draft 'control'")


def test_a_broken_file_is_refused_with_its_side(tmp_path):
    for name in ("target.gguf", "draft.gguf"):
        with smollm2_gguf().open("rb") as whole:
            (tmp_path / name).write_bytes(whole.read(100_000))
    with pytest.raises(Refused) as refused:
        compare_pair(tmp_path / "target.gguf", tmp_path / "draft.gguf")
    assert [(refusal.code, refusal.where.split(":")[0]) for refusal in refused.value.refusals] == [
        ("gguf.array_too_long", "target target.gguf"),
        ("gguf.array_too_long", "draft draft.gguf"),
    ]


def test_what_is_no_tokenizer_is_refused_by_name(tmp_path):
    (tmp_path / "folder").mkdir()
    shutil.copy(qwen3_tokenizer() / "tokenizer.json", tmp_path / "qwen.json")
    (tmp_path / "notes.txt").write_text("no tokenizer")
    cases = {
        tmp_path / "folder": "tokenizer.none",
        tmp_path / "qwen.json": "tokenizer.file_name",
        tmp_path / "notes.txt": "gguf.not_gguf",
        Path("/dev/zero"): "gguf.not_regular_file",
    }
    for path, code in cases.items():
        with pytest.raises(Refused) as refused:
            compare_pair(smollm2_gguf(), path)
        assert [refusal.code for refusal in refused.value.refusals] == [code]
        assert refused.value.where.startswith("draft ")


def test_a_pre_tokenizer_unknown_to_the_converter_is_no_difference(tmp_path):
    rule = {"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated", "invert": False}
    folder = s.write_tokenizer(tmp_path, {}, {"add_bos_token": False}, pre_tokenizer=rule)
    target, draft = read_both(folder, folder)
    assert {vocabulary.pre for vocabulary in as_gguf(target, draft)} == {None}
    assert pair_sources(replace(target, rows=10), replace(draft, rows=10)).verdict == "compatible"


def test_the_gguf_side_is_taken_as_it_is():
    source = read_source(smollm2_gguf())
    assert (source.form, source.rows, source.as_gguf(1).texts) == ("GGUF", 49152, read_gguf(smollm2_gguf()).texts)


def test_a_spoiled_file_is_a_verdict_or_a_named_refusal(tmp_path):
    tokens = [f"t{token}" for token in range(20)]
    keys = {"scores": [0.5] * 20, "merges": ["a b", "c d"], "pre": "qwen2", "bos_token_id": 1, "add_bos_token": True}
    whole = write_gguf(tmp_path / "whole.gguf", tokens, [CONTROL] + [NORMAL] * 19, **keys)
    raw, random = whole.read_bytes(), np.random.default_rng(0)
    endings = set()
    for _ in range(1000):
        spoiled = bytearray(raw)
        for at in random.integers(0, len(raw), random.integers(1, 4)):
            spoiled[at] = random.integers(0, 256)
        (tmp_path / "spoiled.gguf").write_bytes(spoiled)
        try:
            endings.add(compare_pair(whole, tmp_path / "spoiled.gguf").verdict)
        except Refused as refused:
            endings.add(refused.code.split(".")[0])
    assert endings == {"compatible", "compatible with remarks", "refused", "gguf", "tokenizer"}
