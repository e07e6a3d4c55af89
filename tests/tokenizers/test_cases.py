"""The thirteen published cases in which equal vocab_size proved nothing, or unequal ones nothing either."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import Refused
from draftmill.tokenizers.borrowing import borrow
from draftmill.tokenizers.families import FAMILIES
from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.tokenizers.identity import compare
from draftmill.tokenizers.pairing import pair
from tests.tokenizers import synthetic as s

# The synthetic vocabularies have ten pieces, so that no digest of a real map can hold.
FAMILIES_BY_TOKENS = [dataclasses.replace(f, texts_sha256=None, evidence=None, files=frozenset()) for f in FAMILIES]

QWEN_SIDE = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "bos_token": None, "add_bos_token": False}
R1_SIDE = {
    "bos_token": {"content": "<｜begin▁of▁sentence｜>"},
    "eos_token": {"content": "<｜end▁of▁sentence｜>"},
    "pad_token": {"content": "<｜end▁of▁sentence｜>"},
    "add_bos_token": True,
    "add_eos_token": False,
}
LLAMA_SIDE = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "add_bos_token": True}
LLAMA_BASE_SIDE = LLAMA_SIDE | {"eos_token": "<|end_of_text|>"}

QWEN3_DRAFT = {"model_type": "qwen3", "bos_token_id": 151643, "eos_token_id": 151645, "vocab_size": 151936}
QWEN2_DRAFT = QWEN3_DRAFT | {"model_type": "qwen2"}
R1_DRAFT = QWEN2_DRAFT | {"eos_token_id": 151643, "_name_or_path": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"}
LLAMA_DRAFT = {
    "model_type": "llama",
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "vocab_size": 128256,
}
LLAMA2 = {0: "<unk>", 1: "<s>", 2: "</s>"}
LLAMA2_SIDE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}


@dataclass
class Tok:
    """What a tokenizer folder holds."""

    added: dict[int, str]
    side: dict[str, Any]
    pieces: dict[int, str] = field(default_factory=lambda: s.LETTERS)
    changes: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        return s.write_tokenizer(folder, self.added, self.side, pieces=self.pieces, **self.changes)


LLAMA2_PIECES = {3: "▁a", 4: "▁b", 5: "▁c", 6: "▁d", 31999: "▁z"}
SPM = {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "merges": []}


def spm(pieces: dict[int, str]) -> Tok:
    vocab = {text: token for token, text in {**pieces, **LLAMA2}.items()}
    return Tok(LLAMA2, LLAMA2_SIDE, changes={"model": SPM | {"vocab": vocab}})


QWEN2_5, QWEN3 = Tok(s.QWEN2_5, QWEN_SIDE), Tok(s.QWEN3, QWEN_SIDE)
R1_QWEN, R1_LLAMA = Tok(s.R1_QWEN, R1_SIDE), Tok(s.R1_LLAMA, R1_SIDE)
LLAMA3, LLAMA3_1 = Tok(s.LLAMA3, LLAMA_SIDE), Tok(s.LLAMA3_1, LLAMA_SIDE)


@dataclass
class Case:
    """left/right: tokenizers with their rows; level and first: what comparing says; pair: codes and the first place."""

    number: str
    left: Tok
    right: Tok
    rows: tuple[int, int]
    level: str
    first: tuple[str, str, Any, Any] | None
    pair_codes: set[str]
    pair_text_at: str | None = None


CASES = [
    Case(
        "1 Qwen2.5, Qwen3",
        QWEN2_5,
        QWEN3,
        (151936, 151936),
        "none",
        ("texts", "id 151665", None, "<tool_response>"),
        {"tokenizer.pair_text"},
        "id 151665",
    ),
    Case(
        "3 R1-Distill-Qwen-1.5B, Qwen2.5-1.5B",
        R1_QWEN,
        QWEN2_5,
        (151936, 151936),
        "none",
        ("texts", "id 151643", "<｜end▁of▁sentence｜>", "<|endoftext|>"),
        {"tokenizer.pair_add_bos", "tokenizer.pair_text"},
        "id 151643",
    ),
    Case("4 Qwen2.5 small, large", QWEN2_5, QWEN2_5, (151936, 152064), "file", None, set()),
    Case("5 R1-Distill-Qwen 1.5B, 7B", R1_QWEN, R1_QWEN, (151936, 152064), "file", None, set()),
    Case(
        "6 Llama-3, Llama-3.1",
        LLAMA3,
        LLAMA3_1,
        (128256, 128256),
        "none",
        ("texts", "id 128004", "<|reserved_special_token_2|>", "<|finetune_right_pad_id|>"),
        {"tokenizer.pair_text"},
        "id 128004",
    ),
    Case(
        "7 Llama-3 base, instruct",
        Tok(s.LLAMA3, LLAMA_BASE_SIDE),
        LLAMA3,
        (128256, 128256),
        "texts",
        ("eos", "the whole", 128001, 128009),
        set(),
    ),
    Case(
        "8 Llama-3.1, R1-Distill-Llama",
        LLAMA3_1,
        R1_LLAMA,
        (128256, 128256),
        "none",
        ("texts", "id 128000", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>"),
        {"tokenizer.pair_text"},
        "id 128000",
    ),
    Case(
        "9 Llama-3.1, Hermes-4",
        LLAMA3_1,
        Tok(s.HERMES, LLAMA_SIDE),
        (128256, 128256),
        "none",
        ("texts", "id 128013", "<|reserved_special_token_5|>", "<tool_call>"),
        {"tokenizer.pair_text"},
        "id 128013",
    ),
    Case(
        "10 Qwen3, Qwen3-Coder",
        Tok(s.QWEN3, QWEN_SIDE | {"bos_token": "<|endoftext|>"}),
        Tok(s.QWEN3, QWEN_SIDE | {"bos_token": "<|im_start|>"}),
        (151936, 151936),
        "texts",
        ("bos", "the whole", 151643, 151644),
        set(),
    ),
    Case(
        "11 Llama-2, Mistral-7B",
        spm(LLAMA2_PIECES),
        spm(LLAMA2_PIECES | {5: "▁the", 6: "▁of"}),
        (32000, 32000),
        "none",
        ("texts", "id 5", "▁c", "▁the"),
        {"tokenizer.pair_text"},
        "id 5",
    ),
    Case(
        "12 R1-0528-Qwen3-8B, Qwen3-8B",
        Tok(s.R1_0528_QWEN3, QWEN_SIDE | {"eos_token": "<｜end▁of▁sentence｜>", "pad_token": None}),
        QWEN3,
        (151936, 151936),
        "none",
        ("texts", "id 151643", "<｜begin▁of▁sentence｜>", "<|endoftext|>"),
        {"tokenizer.pair_text"},
        "id 151643",
    ),
    Case(
        "13 two vocabularies of one size by chance",
        Tok({}, {"add_bos_token": False}),
        Tok({}, {"add_bos_token": False}, pieces=dict(enumerate("jihgfedcba"))),
        (10, 10),
        "none",
        ("texts", "id 0", "a", "j"),
        {"tokenizer.pair_text"},
        "id 5",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.number)
def test_two_tokenizers_are_compared_and_paired_as_published(case: Case, tmp_path: Path) -> None:
    left = read_tokenizer(case.left.write(tmp_path / "left"))
    right = read_tokenizer(case.right.write(tmp_path / "right"))
    comparison = compare(left, right)
    assert comparison.level == case.level
    first = comparison.differences[0] if comparison.differences else None
    assert (first and (first.facet, first.where, first.left, first.right)) == case.first
    pairing = pair(left.padded(case.rows[0]), right.padded(case.rows[1]))
    assert {refusal.code for refusal in pairing.refusals} == case.pair_codes
    text = [refusal.where for refusal in pairing.refusals if refusal.code == "tokenizer.pair_text"]
    assert text == ([case.pair_text_at] if case.pair_text_at else [])


def borrowed(tmp_path: Path, draft: dict[str, Any], donor: Tok) -> dict[str, Any]:
    model = s.write_draft(tmp_path / "draft", **draft)
    folder = donor.write(tmp_path / "donor")
    return borrow(model, folder, "someone/donor@main", families=FAMILIES_BY_TOKENS).proof


REFUSED = [
    ("1 Qwen3 draft, Qwen2.5 donor", QWEN3_DRAFT, QWEN2_5, {"tokenizer.family"}),
    ("1 Qwen2.5 draft, Qwen3 donor", QWEN2_DRAFT, QWEN3, {"tokenizer.family"}),
    ("2 mask 151665 is a tag of Qwen3", QWEN3_DRAFT | {"pard_token": 151665}, QWEN3, {"tokenizer.pard_token_taken"}),
    (
        "2 mask of a Qwen2.5 draft under Qwen3",
        QWEN2_DRAFT | {"pard_token": 151665},
        QWEN3,
        {"tokenizer.family", "tokenizer.pard_token_taken"},
    ),
    (
        "3 Qwen2.5 draft, R1 donor",
        QWEN2_DRAFT,
        R1_QWEN,
        {"tokenizer.family", "tokenizer.eos_plain", "tokenizer.roles_swapped"},
    ),
    ("3 R1 draft, Qwen2.5 donor", R1_DRAFT, QWEN2_5, {"tokenizer.family"}),
    ("6 Llama-3.2 draft, Llama-3 donor", LLAMA_DRAFT, LLAMA3, {"tokenizer.family", "tokenizer.eos_reserved"}),
    ("8 Llama-3.2 draft, R1-Distill-Llama donor", LLAMA_DRAFT, R1_LLAMA, {"tokenizer.family"}),
    ("9 Llama-3.2 draft, Hermes donor", LLAMA_DRAFT, Tok(s.HERMES, LLAMA_SIDE), {"tokenizer.family"}),
    (
        "11 Llama-3.2 draft, Llama-2 donor",
        LLAMA_DRAFT,
        spm(LLAMA2_PIECES),
        {"tokenizer.family", "tokenizer.bos_absent", "tokenizer.eos_absent"},
    ),
    ("12 Qwen3 draft, R1-0528 donor", QWEN3_DRAFT, CASES[10].left, {"tokenizer.family"}),
    (
        "large donor, small embedding",
        QWEN3_DRAFT | {"rows": 151668},
        QWEN3,
        {"tokenizer.embedding_rows", "tokenizer.ids_outside"},
    ),
    ("a head of another size", QWEN3_DRAFT | {"head": 32000}, QWEN3, {"tokenizer.head_rows"}),
]


@pytest.mark.parametrize(("draft", "donor", "codes"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_foreign_donor_is_refused(draft: dict[str, Any], donor: Tok, codes: set[str], tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        borrowed(tmp_path, draft, donor)
    assert {refusal.code for refusal in refused.value.refusals} == codes


ACCEPTED = [
    ("1 Qwen3", QWEN3_DRAFT, QWEN3, 151936 - 151669, "Qwen3"),
    ("2 mask 151670 is unused in Qwen3", QWEN3_DRAFT | {"pard_token": 151670}, QWEN3, 267, "Qwen3"),
    ("2 mask 151665 is unused in Qwen2.5", QWEN2_DRAFT | {"pard_token": 151665}, QWEN2_5, 271, "Qwen2.5"),
    ("3 R1 draft by name", R1_DRAFT | {"pard_token": 151665}, R1_QWEN, 271, "DeepSeek-R1-Distill-Qwen"),
    ("4 Qwen2.5 large", QWEN2_DRAFT | {"vocab_size": 152064}, QWEN2_5, 399, "Qwen2.5"),
    ("5 R1 large", R1_DRAFT | {"vocab_size": 152064}, R1_QWEN, 399, "DeepSeek-R1-Distill-Qwen"),
    ("6 mask in a reserved slot", LLAMA_DRAFT | {"pard_token": 128020}, LLAMA3_1, 0, "Llama-3.1 (also 3.2 and 3.3)"),
    ("7 base draft, instruct donor", LLAMA_DRAFT | {"eos_token_id": 128001}, LLAMA3, 0, "Llama-3"),
    ("10 Qwen3-Coder", QWEN3_DRAFT, CASES[8].right, 267, "Qwen3"),
    (
        "12 R1-0528 draft by name",
        QWEN3_DRAFT | {"_name_or_path": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"},
        CASES[10].left,
        267,
        "DeepSeek-R1-0528-Qwen3",
    ),
]


@pytest.mark.parametrize(
    ("draft", "donor", "padding", "family"), [c[1:] for c in ACCEPTED], ids=[c[0] for c in ACCEPTED]
)
def test_the_right_donor_is_proven(
    draft: dict[str, Any], donor: Tok, padding: int, family: str, tmp_path: Path
) -> None:
    proof = borrowed(tmp_path, draft, donor)
    assert proof["origin"] == "donor"
    assert proof["vocabulary"]["padding_rows"] == padding
    assert (proof["family"]["name"], proof["family"]["level"]) == (family, "known tokens")
    assert all(check["passed"] for check in proof["checks"])


def test_the_end_token_that_a_base_draft_and_an_instruct_donor_disagree_on_is_told(tmp_path: Path) -> None:
    proof = borrowed(tmp_path, LLAMA_DRAFT | {"eos_token_id": 128001}, LLAMA3)
    assert any("eos: config.json says [128001], the tokenizer 128009 ('<|eot_id|>')" in r for r in proof["remarks"])


def test_a_mask_in_a_reserved_slot_is_told(tmp_path: Path) -> None:
    proof = borrowed(tmp_path, LLAMA_DRAFT | {"pard_token": 128020}, LLAMA3_1)
    assert any("'<|reserved_special_token_12|>'" in remark for remark in proof["remarks"])
