"""Where two tokenizers part: facet by facet, at the place a reader has to look."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.tokenizers.identity import compare
from draftmill.tokenizers.vocabulary import Vocabulary
from tests.tokenizers import synthetic as s

ADDED = {10: "<bos>", 11: "<eos>"}
SIDE = {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": False}
MODEL = s.document(ADDED)["model"]


def tokenizer(folder: Path, side: dict[str, Any] = SIDE, **changes: Any) -> Vocabulary:
    return read_tokenizer(s.write_tokenizer(folder, ADDED, side, **changes))


# What is changed in the second; the facet, the place and both values.
DIFFERENCES: list[tuple[dict[str, Any], str, str, Any, Any]] = [
    ({"normalizer": None}, "normalizer", "the whole", {"type": "NFC"}, None),
    ({"normalizer": {"type": "NFKC"}}, "normalizer", "type", "NFC", "NFKC"),
    ({"decoder": s.BYTE_LEVEL | {"use_regex": True}}, "decoder", "use_regex", False, True),
    # True and 1 are equal to Python, and not the same JSON.
    ({"decoder": s.BYTE_LEVEL | {"use_regex": 0}}, "decoder", "use_regex", False, 0),
    ({"decoder": s.BYTE_LEVEL | {"more": 1}}, "decoder", "more", None, 1),
    ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": []}}, "pre_tokenizer", "add_prefix_space", False, None),
    ({"post_processor": [1]}, "post_processor", "the whole", s.BYTE_LEVEL, [1]),
    ({"model": MODEL | {"merges": [["a", "b"]]}}, "merges", "[0]", None, "a b"),
    ({"model": MODEL | {"ignore_merges": True}}, "options", "ignore_merges", None, True),
    ({"truncation": {"max_length": 8}}, "options", "truncation", None, {"max_length": 8}),
    ({"side": SIDE | {"eos_token": "<bos>"}}, "eos", "the whole", 11, 10),
    ({"side": SIDE | {"add_bos_token": True}}, "add_bos", "the whole", False, True),
]


@pytest.mark.parametrize(("change", "facet", "where", "left", "right"), DIFFERENCES)
def test_one_change_is_one_difference(
    change: dict[str, Any], facet: str, where: str, left: Any, right: Any, tmp_path: Path
) -> None:
    comparison = compare(tokenizer(tmp_path / "left"), tokenizer(tmp_path / "right", **change))
    (difference,) = comparison.differences
    assert dataclasses.astuple(difference) == (facet, where, left, right)
    assert comparison.level == "texts"


def test_the_first_of_several_merges_is_named(tmp_path: Path) -> None:
    left = tokenizer(tmp_path / "left", model=MODEL | {"merges": ["a b", "c d", "e f"]})
    right = tokenizer(tmp_path / "right", model=MODEL | {"merges": ["a b", "c e", "e g"]})
    assert [str(difference) for difference in compare(left, right).differences] == [
        "merges at [1]: 'c d' against 'c e'"
    ]


def test_equal_bytes_equal_content_and_equal_statements_are_three_levels(tmp_path: Path) -> None:
    left = tokenizer(tmp_path / "left")
    assert compare(left, tokenizer(tmp_path / "same")).level == "file"
    respelt = tokenizer(tmp_path / "respelt", model=MODEL | {"unk_token": "", "dropout": 0})
    assert compare(left, respelt).level == "whole"
    silent = compare(left, tokenizer(tmp_path / "silent", side={"bos_token": "<bos>", "eos_token": "<eos>"}))
    assert (silent.level, silent.not_comparable) == ("stated", ("add_bos",))


def test_padding_does_not_count(tmp_path: Path) -> None:
    left = tokenizer(tmp_path / "left")
    assert compare(left.padded(16), left.padded(32)).level == "file"
    with pytest.raises(ValueError, match="11 rows do not hold id 11"):
        left.padded(11)


def test_a_long_value_is_cut_in_the_text_of_a_difference(tmp_path: Path) -> None:
    right = tokenizer(tmp_path / "right", normalizer={"type": "NFC", "long": "x" * 1000})
    (difference,) = compare(tokenizer(tmp_path / "left"), right).differences
    assert str(difference).startswith("normalizer at long: nothing against 'xxx")
    assert len(str(difference)) < 200
