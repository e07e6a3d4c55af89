"""Reading tokenizer.json: held against the tokenizers library and gguf's own reading of the special tokens."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers

from draftmill.outcome import Refused
from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.tokenizers.identity import compare
from tests.support.inputs import qwen3_tokenizer
from tests.tokenizers import synthetic as s


def test_the_real_qwen3_map_is_what_the_library_sees() -> None:
    vocabulary = read_tokenizer(qwen3_tokenizer())
    library = Tokenizer.from_file(str(qwen3_tokenizer() / "tokenizer.json"))
    assert vocabulary.id_of == library.get_vocab(with_added_tokens=True)
    added = library.get_added_tokens_decoder()
    assert {t: (a.text, a.special, a.normalized) for t, a in vocabulary.added.items()} == {
        t: (a.content, a.special, a.normalized) for t, a in added.items()
    }
    assert (vocabulary.kind, vocabulary.highest, vocabulary.size) == ("BPE", 151668, 151669)
    assert vocabulary.text(151670) == "[PAD151670]"


def template(single: str) -> dict[str, Any]:
    special = [("<bos>", 10), ("<eos>", 11), ("<end>", 12)]
    return json.loads(processors.TemplateProcessing(single=single, special_tokens=special).__getstate__())


SIDES: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
    ({"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "add_eos_token": False}, s.BYTE_LEVEL),
    ({"bos_token": {"content": "<bos>"}, "eos_token": "<eos>"}, template("<bos> $A")),
    ({"bos_token": "<bos>", "eos_token": "<eos>"}, template("<bos> $A <eos>")),
    ({"bos_token": "<bos>", "eos_token": "<eos>"}, template("<bos> $A <end>")),
    ({"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": False}, template("<bos> $A")),
    ({"bos_token": "<eos>"}, {"type": "Sequence", "processors": [s.BYTE_LEVEL, template("<bos> $A")]}),
    ({"bos_token": None, "eos_token": "<eos>", "pad_token": "<end>", "unk_token": None}, s.BYTE_LEVEL),
    (None, template("<bos> $A <eos>")),
]


@pytest.mark.parametrize(("side", "processor"), SIDES)
def test_roles_and_what_is_added_are_read_as_the_converter_reads_them(
    side: dict[str, Any] | None, processor: dict[str, Any], tmp_path: Path
) -> None:
    s.write_tokenizer(tmp_path, {10: "<bos>", 11: "<eos>", 12: "<end>"}, side, post_processor=processor)
    vocabulary = read_tokenizer(tmp_path)
    converter = gguf.SpecialVocab(tmp_path)
    ids = {role: token for role, token in converter.special_token_ids.items() if role in ("bos", "eos", "pad", "unk")}
    assert vocabulary.ids == ids
    adds = converter.add_special_token
    assert (vocabulary.add_bos, vocabulary.add_eos) == (adds.get("bos"), adds.get("eos"))


def test_a_token_that_no_id_carries_is_unresolved(tmp_path: Path) -> None:
    s.write_tokenizer(tmp_path, {10: "<bos>"}, {"bos_token": "<bos>", "pad_token": "<pad>"})
    vocabulary = read_tokenizer(tmp_path)
    assert (vocabulary.ids, vocabulary.unresolved) == ({"bos": 10}, {"pad": "<pad>"})


def test_both_spellings_of_merges_are_one(tmp_path: Path) -> None:
    model = s.document({})["model"]
    pairs = read_tokenizer(s.write_tokenizer(tmp_path / "pairs", {}, model=model | {"merges": [["a", "b"]]}))
    texts = read_tokenizer(s.write_tokenizer(tmp_path / "texts", {}, model=model | {"merges": ["a b"]}))
    other = read_tokenizer(s.write_tokenizer(tmp_path / "other", {}, model=model | {"merges": ["b a"]}))
    assert compare(pairs, texts).level == "whole"
    assert [d.facet for d in compare(pairs, other).differences] == ["merges"]


def test_a_space_inside_a_merge_becomes_what_the_converter_writes(tmp_path: Path) -> None:
    model = s.document({})["model"] | {"merges": [["a ", "b"]]}
    s.write_tokenizer(tmp_path, {}, {}, model=model)
    assert read_tokenizer(tmp_path).stated["merges"] == gguf.SpecialVocab(tmp_path, load_merges=True).merges == ["aĠ b"]


def test_a_unigram_model_is_read_by_position(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.5)], unk_id=0))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_tokenizer(tmp_path)
    assert (vocabulary.kind, vocabulary.texts) == ("UGM", {0: "<unk>", 1: "a", 2: "b"})
    other = tmp_path / "other"
    other.mkdir()
    Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0)).save(str(other / "tokenizer.json"))
    assert [d.facet for d in compare(vocabulary, read_tokenizer(other)).differences] == ["options"]


def trained(folder: Path, **flags: bool) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        ["to be or not to be"] * 3, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet)
    )
    tokenizer.add_tokens([AddedToken("<x>", **flags)])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_flag_that_changes_what_the_library_encodes_is_a_difference(tmp_path: Path) -> None:
    plain, strips = (
        trained(tmp_path / "plain", normalized=False),
        trained(tmp_path / "strips", normalized=False, lstrip=True),
    )
    sentence = "to be <x> or"
    first, second = (Tokenizer.from_file(str(f / "tokenizer.json")).encode(sentence).ids for f in (plain, strips))
    assert first != second
    comparison = compare(read_tokenizer(plain), read_tokenizer(strips))
    assert (comparison.level, [d.facet for d in comparison.differences]) == ("texts", ["added_flags"])


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for name in parents:
            document = document[int(name) if name.isdigit() else name]  # type: ignore[call-overload]
        document[int(last) if last.isdigit() else last] = value  # type: ignore[call-overload]

    return apply


MALFORMED = [
    ("no model", change("model", None)),
    ("an unknown model", change("model.type", "WordLevel")),
    ("a model type that is no text", change("model.type", ["BPE"])),
    ("no vocabulary", change("model.vocab", None)),
    ("an empty vocabulary", change("model.vocab", [])),
    ("an id that is a text", change("model.vocab.a", "0")),
    ("an id that is a truth value", change("model.vocab.a", True)),
    ("a negative id", change("model.vocab.a", -1)),
    ("a huge id", change("model.vocab.a", 1 << 40)),
    ("one id, two texts", change("model.vocab.a", 1)),
    ("two ids, one text", change("added_tokens.0.content", "a")),
    ("added tokens that are no list", change("added_tokens", {"x": 1})),
    ("an added token without a flag", change("added_tokens.0.lstrip", None)),
    ("an added token without text", change("added_tokens.0.content", None)),
    ("merges that are no list", change("model.merges", {"a": "b"})),
    ("a merge of three", change("model.merges", ["a b c"])),
    ("a merge of nothing", change("model.merges", [["a", ""]])),
    ("a text beyond all size", change("added_tokens.0.content", "x" * 70000)),
]


@pytest.mark.parametrize("damage", [case[1] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_malformed_tokenizer_is_refused(damage: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    good = s.document({10: "<x>"}, model=s.document({})["model"])
    (tmp_path / "tokenizer.json").write_text(json.dumps(good))
    read_tokenizer(tmp_path)
    bad = copy.deepcopy(good)
    damage(bad)
    (tmp_path / "tokenizer.json").write_text(json.dumps(bad))
    with pytest.raises(Refused) as refused:
        read_tokenizer(tmp_path)
    assert [refusal.code for refusal in refused.value.refusals] == ["tokenizer.malformed"]


@pytest.mark.parametrize(
    "side", ["[1]", '{"bos_token": 5}', '{"bos_token": {"content": [1]}}', '{"add_bos_token": "yes"}'], ids=str
)
def test_a_strange_tokenizer_config_states_nothing_or_is_refused(side: str, tmp_path: Path) -> None:
    s.write_tokenizer(tmp_path, {10: "<bos>"})
    (tmp_path / "tokenizer_config.json").write_text(side)
    if side == "[1]":
        with pytest.raises(Refused):
            read_tokenizer(tmp_path)
    else:
        vocabulary = read_tokenizer(tmp_path)
        assert (vocabulary.ids, vocabulary.add_bos) == ({}, None)
