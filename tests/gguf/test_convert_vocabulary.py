"""The tokenizer.* keys: token types, padding, what is added to a text, and the tokenizers that are refused."""

import json

import pytest
from gguf import GGUFReader, TokenType

from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.post_processors import added_tokens
from draftmill.gguf.pre_tokenizers import KNOWN, pre_tokenizer_name, rule_digest
from draftmill.outcome import Refused
from tests.gguf.convert_models import TINY_VOCAB, change_json, write_tiny_model
from tests.support.inputs import qwen3_tokenizer

NAME = Provenance(name="Tiny-Draft")
BOS = {"SpecialToken": {"id": "<|begin|>", "type_id": 0}}
END = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
A, B = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")


@pytest.fixture
def model(tmp_path):
    write_tiny_model(tmp_path / "model")
    return tmp_path / "model"


def fields(model, tmp_path):
    convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=NAME)
    return {name: field.contents() for name, field in GGUFReader(tmp_path / "x.gguf").fields.items()}


def refused(model, tmp_path):
    with pytest.raises(Refused) as caught:
        convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=NAME)
    assert not list(tmp_path.glob("x.gguf*"))
    return [refusal.code for refusal in caught.value.refusals]


def added(text, token, *, special, normalized=False):
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    return {"id": token, "content": text, "normalized": normalized, "special": special, **flags}


def test_tokens_have_their_types_and_rows_without_a_token_are_padding(model, tmp_path):
    document = json.loads((model / "tokenizer.json").read_text())
    more = [
        added("<tool>", 259, special=False),
        added("<|looks_special|>", 260, special=False),
        added("a\u2581b", 261, special=False, normalized=True),
        added("<|fin\uff5c\u00e9>", 262, special=True),
    ]
    change_json(model / "tokenizer.json", added_tokens=document["added_tokens"] + more)
    found = fields(model, tmp_path)
    tokens, types = found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"]
    assert len(tokens) == len(types) == TINY_VOCAB
    assert tokens[256:265] == [
        "ab",
        "<|begin|>",
        "<|end|>",
        "<tool>",
        "<|looks_special|>",
        "a b",
        "<|fin\uff5c\u00e9>",
        "[PAD263]",
        "[PAD264]",
    ]
    kinds = [TokenType.NORMAL, *[TokenType.CONTROL] * 2, TokenType.USER_DEFINED, TokenType.CONTROL]
    kinds += [TokenType.USER_DEFINED, TokenType.CONTROL, *[TokenType.UNUSED] * 2]
    assert types[256:265] == [int(kind) for kind in kinds]
    assert types[0] == TokenType.NORMAL and types[-1] == TokenType.UNUSED
    assert found["tokenizer.ggml.merges"] == ["a b"]
    assert found["tokenizer.ggml.pre"] == "smollm"
    assert (found["tokenizer.ggml.bos_token_id"], found["tokenizer.ggml.eos_token_id"]) == (257, 258)


def test_a_chat_template_in_a_file_of_its_own_is_taken(model, tmp_path):
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert fields(model, tmp_path)["tokenizer.chat_template"] == "{{ messages }}"


def test_a_missing_tokenizer_points_to_a_donor(model, tmp_path):
    (model / "tokenizer.json").unlink()
    assert refused(model, tmp_path) == ["convert.tokenizer_missing"]


def test_more_ids_than_rows_are_refused(model, tmp_path):
    document = json.loads((model / "tokenizer.json").read_text())
    change_json(model / "tokenizer.json", added_tokens=[*document["added_tokens"], added("<x>", 300, special=False)])
    assert refused(model, tmp_path) == ["convert.tokenizer_rows"]


def test_a_special_id_beyond_the_rows_is_refused(model, tmp_path):
    change_json(model / "config.json", pad_token_id=300)
    assert refused(model, tmp_path) == ["convert.special_ids"]


def test_a_sentencepiece_model_beside_it_is_refused(model, tmp_path):
    (model / "tokenizer.model").write_bytes(b"\x0a\x00")
    assert refused(model, tmp_path) == ["convert.tokenizer_kind"]


def test_a_role_for_a_token_that_is_not_special_is_refused(model, tmp_path):
    change_json(model / "tokenizer_config.json", unk_token="ab")
    assert refused(model, tmp_path) == ["convert.special_token"]


@pytest.mark.parametrize(
    "entry", [{"content": "<|start|>", "special": True}, {"content": "<|begin|>", "special": False}]
)
def test_files_that_describe_a_token_differently_are_refused(model, tmp_path, entry):
    change_json(model / "tokenizer_config.json", added_tokens_decoder={"257": entry})
    assert refused(model, tmp_path) == ["convert.tokenizer_disagrees"]


def test_files_that_agree_on_a_token_pass(model, tmp_path):
    change_json(
        model / "tokenizer_config.json", added_tokens_decoder={"257": {"content": "<|begin|>", "special": True}}
    )
    assert fields(model, tmp_path)["tokenizer.ggml.bos_token_id"] == 257


def test_an_unknown_pre_tokenizer_names_its_digest_and_the_other_converter(model, tmp_path):
    change_json(model / "tokenizer.json", normalizer={"type": "NFKC"})
    with pytest.raises(Refused) as caught:
        convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=NAME)
    (refusal,) = caught.value.refusals
    assert refusal.code == "convert.pre_tokenizer_unknown"
    assert refusal.measured["digest"][:12] in refusal.sentence and "--converter stock" in refusal.sentence


def test_a_chat_template_of_another_form_is_refused(model, tmp_path):
    change_json(model / "tokenizer_config.json", chat_template=[{"name": "default"}])
    assert refused(model, tmp_path) == ["convert.tokenizer_unreadable"]


def stated(**changes):
    document = json.loads((qwen3_tokenizer() / "tokenizer.json").read_text())
    rule = {"normalizer": document["normalizer"], "pre_tokenizer": document["pre_tokenizer"], "options": {}}
    return rule | changes


def test_the_real_qwen3_rule_is_qwen2_and_behind_deepseeks_bos_it_is_deepseeks():
    assert pre_tokenizer_name(stated(), None) == "qwen2"
    assert pre_tokenizer_name(stated(), 151646) == "deepseek-r1-qwen"
    with pytest.raises(Refused):
        pre_tokenizer_name(stated(), 151643)


def test_what_changes_offsets_only_is_not_part_of_a_rule_and_the_rest_is():
    rule = json.loads(json.dumps(stated()))
    steps = rule["pre_tokenizer"]["pretokenizers"]
    steps[1]["trim_offsets"] = not steps[1]["trim_offsets"]
    assert rule_digest(rule) == rule_digest(stated())
    assert (rule_digest(rule), None) in KNOWN
    steps[1]["add_prefix_space"] = True
    assert rule_digest(rule) != rule_digest(stated())
    assert rule_digest(stated(options={"ignore_merges": True})) != rule_digest(stated())


@pytest.mark.parametrize(
    ("processor", "side", "adds"),
    [
        (None, {}, {}),
        ({"type": "ByteLevel"}, {}, {"bos": False, "eos": False}),
        (None, {"add_bos_token": True, "add_eos_token": False}, {"bos": True, "eos": False}),
        ({"type": "TemplateProcessing", "single": [BOS, A], "pair": [BOS, A, B]}, {}, {"bos": True}),
        (
            {
                "type": "Sequence",
                "processors": [
                    {"type": "ByteLevel"},
                    {"type": "TemplateProcessing", "single": [BOS, A], "pair": [BOS, A, BOS, B]},
                ],
            },
            {},
            {"bos": True, "eos": False, "sep": False},
        ),
        ({"type": "TemplateProcessing", "single": [A], "pair": [A, B]}, {}, {}),
    ],
)
def test_what_a_post_processor_adds_is_read(processor, side, adds):
    assert added_tokens(processor, {"bos_token": "<|begin|>"} | side) == adds


@pytest.mark.parametrize(
    ("processor", "side", "code"),
    [
        ({"type": "RobertaProcessing"}, {}, "convert.post_processor"),
        ({"type": "TemplateProcessing", "single": [BOS, A, END], "pair": []}, {}, "convert.post_processor"),
        ({"type": "TemplateProcessing", "single": [END, A], "pair": []}, {}, "convert.post_processor"),
        ({"type": "ByteLevel"}, {"add_bos_token": True}, "convert.tokenizer_disagrees"),
        ("ByteLevel", {}, "convert.post_processor"),
    ],
)
def test_a_post_processor_that_would_have_to_be_guessed_at_is_refused(processor, side, code):
    with pytest.raises(Refused) as caught:
        added_tokens(processor, {"bos_token": "<|begin|>"} | side)
    assert caught.value.code == code
