"""Pairs come from vocabularies: equal names prove nothing, and an off-pair is one that is said."""

from dataclasses import replace

from draftmill.catalogue.pairs import derive_pairs
from draftmill.tokenizers.huggingface import read_tokenizer
from tests.support.inputs import qwen3_tokenizer

QWEN3 = read_tokenizer(qwen3_tokenizer()).padded(151936)
# Qwen2.5's vocabulary ends at 151664: the four tags that Qwen3 adds are padding there.
QWEN2_5 = replace(QWEN3, texts={token: text for token, text in QWEN3.texts.items() if token <= 151664})


def test_a_target_fits_by_what_its_vocabulary_says_and_not_by_its_name() -> None:
    pairs = derive_pairs(QWEN3, {"acme/other-name": QWEN3, "Qwen/Qwen3-8B": QWEN2_5}, ("acme/other-name",))
    assert [(pair.target, pair.verdict, pair.off_pair) for pair in pairs] == [
        ("acme/other-name", "compatible", False),
        ("Qwen/Qwen3-8B", "refused", True),
    ]
    assert pairs[1].refusals[0]["where"] == "id 151665"


def test_another_target_than_it_was_trained_for_is_allowed_and_flagged() -> None:
    targets = {"Qwen/Qwen3-8B": QWEN3, "Qwen/Qwen3-32B": QWEN3.padded(152064)}
    pairs = derive_pairs(QWEN3, targets, ("Qwen/Qwen3-8B",))
    assert [(pair.verdict == "refused", pair.off_pair) for pair in pairs] == [(False, False), (False, True)]
    assert pairs[1].verdict == "compatible with remarks"
    assert [pair.off_pair for pair in derive_pairs(QWEN3, targets, ())] == [None, None]


def test_a_vocabulary_of_more_than_padding_more_is_refused() -> None:
    # llama.cpp allows 128 ids of difference.
    targets = {"at": QWEN3.padded(151936 + 128), "above": QWEN3.padded(151936 + 129)}
    verdicts = {pair.target: pair.verdict for pair in derive_pairs(QWEN3, targets, ())}
    assert (verdicts["at"] != "refused", verdicts["above"]) == (True, "refused")
