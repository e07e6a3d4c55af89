"""Borrowing on real files: the Qwen3 tokenizer, and tiny random checkpoints around it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from draftmill.outcome import Refused
from draftmill.tokenizers.borrowing import borrow
from tests.support.checkpoints import write_checkpoint
from tests.support.inputs import qwen3_tokenizer
from tests.tokenizers import synthetic as s

SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8}
SIDE = {"eos_token": "<eos>", "bos_token": "<bos>"}
CONFIG = {"model_type": "llama", "bos_token_id": 10, "eos_token_id": 11}
ADDED = {10: "<bos>", 11: "<eos>"}


def codes(refused: pytest.ExceptionInfo[Refused]) -> list[str]:
    return [refusal.code for refusal in refused.value.refusals]


@pytest.fixture(scope="module")
def weights_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PARD-2 draft as AMD publishes them: weights, projector, no tokenizer."""
    folder = tmp_path_factory.mktemp("draft")
    pard = {
        "pard_token": 151670,
        "spd_type": "pard2",
        "pard2": True,
        "pard2_target_layers": [-1, -8],
        "pard2_target_dim": 32,
    }
    write_checkpoint(folder, tokenizer=None, tie_word_embeddings=True, num_hidden_layers=1, **SMALL, **pard)
    (folder / "warp_model.bin").write_bytes(b"PK never opened")
    return folder


def test_a_weights_only_draft_is_diagnosed_and_the_donor_named(weights_only: Path) -> None:
    with pytest.raises(Refused) as refused:
        borrow(weights_only)
    assert codes(refused) == ["tokenizer.weights_only"]
    assert "--tokenizer-from Qwen/Qwen3-0.6B" in str(refused.value)


def test_the_real_qwen3_tokenizer_is_borrowed_with_its_proof(weights_only: Path) -> None:
    borrowed = borrow(weights_only, qwen3_tokenizer(), "Qwen/Qwen3-0.6B@c1899de289a04d12100db370d81485cdf75e47ca")
    assert {name: path.parent for name, path in borrowed.files.items()} == {
        "tokenizer.json": qwen3_tokenizer(),
        "tokenizer_config.json": qwen3_tokenizer(),
    }
    proof = borrowed.proof
    with safe_open(weights_only / "model.safetensors", "numpy") as weights:
        rows = weights.get_slice("model.embed_tokens.weight").get_shape()[0]
    assert proof["vocabulary"]["embedding_rows"] == rows == 151936
    # 151643 pieces and 26 added tokens leave 267 rows.
    assert (proof["vocabulary"]["highest_id"], proof["vocabulary"]["padding_rows"]) == (151668, 267)
    assert proof["family"] == {
        "name": "Qwen3",
        "evidence": "model_type qwen3, vocab_size 151936, eos [151645]",
        "level": "file",
    }
    assert proof["donor"] == {"repository": "Qwen/Qwen3-0.6B", "revision": "c1899de289a04d12100db370d81485cdf75e47ca"}
    # The sha256 that PyPI and npm packages of this tokenizer agree on.
    assert proof["files"]["tokenizer.json"].startswith("aeb13307a71acd8f")
    assert proof["drafter"]["modes"]["target-dependent"]["works"] == "with"
    assert proof["drafter"]["projector"] == {"target_proj.weight": [8, 32]}
    assert {"texts", "added", "added_flags", "merges", "normalizer", "pre_tokenizer"} <= set(
        proof["vocabulary"]["digests"]
    )
    json.dumps(proof, allow_nan=False)


def without_newest(folder: Path, **edits: Any) -> Path:
    """The real Qwen3 tokenizer without ids 151665..151668, which is Qwen2.5's map."""
    folder.mkdir()
    document = json.loads((qwen3_tokenizer() / "tokenizer.json").read_bytes())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["id"] < 151665]
    (folder / "tokenizer.json").write_text(json.dumps(document | edits))
    return folder


def test_a_donor_that_lacks_the_four_newest_tokens_is_told_apart(weights_only: Path, tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        borrow(weights_only, without_newest(tmp_path / "donor"), "Qwen/Qwen2.5-0.5B@main")
    assert codes(refused) == ["tokenizer.family"]
    (refusal,) = refused.value.refusals
    assert (refusal.where, refusal.measured, refusal.expected) == ("id 151665", None, "<tool_response>")
    assert "Qwen/Qwen3-0.6B" in refusal.sentence


def test_the_same_tokenizer_is_the_right_one_for_a_qwen2_5_draft(tmp_path: Path) -> None:
    draft = s.write_draft(
        tmp_path / "draft", 151936, model_type="qwen2", bos_token_id=151643, eos_token_id=151645, pard_token=151665
    )
    proof = borrow(draft, without_newest(tmp_path / "donor"), "Qwen/Qwen2.5-0.5B@main").proof
    assert proof["family"]["name"] == "Qwen2.5"
    assert proof["family"]["level"] == "map"
    assert proof["vocabulary"]["padding_rows"] == 271


def test_one_changed_piece_of_a_measured_family_is_refused(weights_only: Path, tmp_path: Path) -> None:
    donor = tmp_path / "donor"
    shutil.copytree(qwen3_tokenizer(), donor)
    document = json.loads((donor / "tokenizer.json").read_bytes())
    vocab = document["model"]["vocab"]
    last = next(text for text, token in vocab.items() if token == 151642)
    vocab["ĠHelloThere"] = vocab.pop(last)
    document["model"]["merges"] = []
    (donor / "tokenizer.json").write_text(json.dumps(document))
    for name in ("vocab.json", "merges.txt"):
        (donor / name).unlink()
    with pytest.raises(Refused) as refused:
        borrow(weights_only, donor, "someone/else@main")
    assert codes(refused) == ["tokenizer.family"]


def test_a_name_in_the_metadata_beats_the_guess_from_the_config(tmp_path: Path) -> None:
    draft = s.write_draft(tmp_path / "draft", 151936, model_type="qwen3", bos_token_id=151643, eos_token_id=151645)
    donor = s.write_tokenizer(tmp_path / "donor", s.R1_0528_QWEN3, {"eos_token": "<｜end▁of▁sentence｜>"})
    with pytest.raises(Refused):
        borrow(draft, donor, "deepseek-ai/x@main")
    base = ["deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"]
    assert (
        borrow(draft, donor, "deepseek-ai/x@main", base_models=base).proof["family"]["name"] == "DeepSeek-R1-0528-Qwen3"
    )


def own(folder: Path, side: dict[str, Any] | None = None, **config: Any) -> Path:
    """A repository with its own synthetic tokenizer."""
    s.write_draft(folder, 16, **CONFIG | config)
    return s.write_tokenizer(folder, ADDED, SIDE if side is None else side)


def test_a_repository_with_its_own_tokenizer_needs_no_donor(tmp_path: Path) -> None:
    proof = borrow(own(tmp_path / "model")).proof
    assert (proof["origin"], proof["donor"], proof["compared_with_donor"]) == ("own", None, None)
    assert proof["vocabulary"]["padding_rows"] == 4
    assert proof["family"]["level"] == "ids only"


def test_a_donor_equal_to_the_own_tokenizer_is_a_remark(tmp_path: Path) -> None:
    donor = s.write_tokenizer(tmp_path / "donor", ADDED, SIDE)
    borrowed = borrow(own(tmp_path / "model"), donor, "a/b@main")
    assert borrowed.proof["origin"] == "own"
    assert borrowed.proof["compared_with_donor"]["level"] == "file"
    assert borrowed.files["tokenizer.json"].parent == tmp_path / "model"


@pytest.mark.parametrize(
    "donor", [({10: "<bos>", 11: "</s>"}, SIDE | {"eos_token": "</s>"}), (ADDED, SIDE | {"eos_token": "<bos>"})]
)
def test_a_donor_unlike_the_own_tokenizer_is_refused(
    donor: tuple[dict[int, str], dict[str, Any]], tmp_path: Path
) -> None:
    folder = s.write_tokenizer(tmp_path / "donor", *donor)
    with pytest.raises(Refused) as refused:
        borrow(own(tmp_path / "model"), folder, "a/b@main")
    assert codes(refused) == ["tokenizer.donor_differs"]


def test_files_that_only_a_slow_tokenizer_reads_are_left_out_and_told(tmp_path: Path) -> None:
    model = own(tmp_path / "model")
    (model / "merges.txt").write_text("a b\n")
    (model / "chat_template.jinja").write_text("{{ messages }}")
    borrowed = borrow(model)
    assert set(borrowed.files) == {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    assert any("merges.txt" in remark for remark in borrowed.proof["remarks"])


def test_other_tokenizer_files_alone_are_not_weights_only(tmp_path: Path) -> None:
    model = s.write_draft(tmp_path / "model", 16, **CONFIG, _name_or_path="meta-llama/Llama-2-7b-hf")
    (model / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(Refused) as refused:
        borrow(model)
    assert codes(refused) == ["tokenizer.no_tokenizer_json"]
    assert "--tokenizer-from meta-llama/Llama-2-7b-hf" in str(refused.value)


def side_file(name: str, content: Any) -> Any:
    return lambda folder: (folder / name).write_text(json.dumps(content))


CONTRADICTIONS = [
    ("added_tokens.json", side_file("added_tokens.json", {"<bos>": 10, "<eos>": 12})),
    ("vocab.json", side_file("vocab.json", {"a": 1})),
    (
        "a token beyond tokenizer.json",
        side_file("tokenizer_config.json", {"added_tokens_decoder": {"12": {"content": "<x>"}}}),
    ),
    ("another text", side_file("tokenizer_config.json", {"added_tokens_decoder": {"11": {"content": "</s>"}}})),
    ("an entry that is no token", side_file("tokenizer_config.json", {"added_tokens_decoder": {"11": True}})),
    ("special_tokens_map.json", side_file("special_tokens_map.json", {"eos_token": "<bos>"})),
]


@pytest.mark.parametrize("contradict", [c[1] for c in CONTRADICTIONS], ids=[c[0] for c in CONTRADICTIONS])
def test_files_that_contradict_the_tokenizer_are_refused(contradict: Any, tmp_path: Path) -> None:
    model = own(tmp_path / "model")
    contradict(model)
    with pytest.raises(Refused) as refused:
        borrow(model)
    assert codes(refused) == ["tokenizer.files_disagree"]


def test_files_that_agree_with_the_tokenizer_pass(tmp_path: Path) -> None:
    decoder = {"11": {"content": "<eos>", "special": True, "lstrip": True}}
    model = own(tmp_path / "model", SIDE | {"added_tokens_decoder": decoder})
    side_file("added_tokens.json", {"<bos>": 10, "<eos>": 11})(model)
    side_file("special_tokens_map.json", {"eos_token": {"content": "<eos>"}, "additional_special_tokens": ["<x>"]})(
        model
    )
    proof = borrow(model).proof
    assert set(proof["files"]) == {
        "tokenizer.json",
        "tokenizer_config.json",
        "added_tokens.json",
        "special_tokens_map.json",
    }
    assert "id 11: the repository's tokenizer_config.json and tokenizer.json differ in ['lstrip']" in proof["remarks"]


def test_an_added_token_that_the_library_renumbers_is_refused(tmp_path: Path) -> None:
    model = own(tmp_path / "model")
    document = s.document(ADDED)
    document["model"]["vocab"] = {text: token for token, text in s.LETTERS.items()}
    document["added_tokens"][1]["id"] = 13
    (model / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(Refused) as refused:
        borrow(model)
    # The config's eos 11 is where the library puts the token, and not where the file says it is.
    assert set(codes(refused)) == {"tokenizer.id_moved", "tokenizer.eos_absent"}


def test_a_tokenizer_that_the_library_cannot_load_is_refused(tmp_path: Path) -> None:
    model = own(tmp_path / "model")
    s.write_tokenizer(model, ADDED, SIDE, pre_tokenizer={"type": "Nonsense"})
    with pytest.raises(Refused) as refused:
        borrow(model)
    assert codes(refused) == ["tokenizer.library_refuses"]


ROLES = [
    ("eos absent", {"eos_token_id": 13}, "tokenizer.eos_absent"),
    ("bos absent", {"bos_token_id": 13}, "tokenizer.bos_absent"),
    ("pad absent", {"pad_token_id": 13}, "tokenizer.pad_absent"),
    ("one of several absent", {"eos_token_id": [11, 13]}, "tokenizer.eos_absent"),
    ("eos is text", {"eos_token_id": "<eos>"}, "tokenizer.eos_absent"),
    ("eos is an ordinary piece", {"eos_token_id": 3}, "tokenizer.eos_plain"),
    ("eos is the tokenizer's bos", {"eos_token_id": 10, "bos_token_id": None}, "tokenizer.roles_swapped"),
    ("the mask is a token", {"pard_token": 3}, "tokenizer.pard_token_taken"),
    ("the mask has no row", {"pard_token": 16}, "tokenizer.pard_token_invalid"),
    ("the mask is a truth value", {"pard_token": True}, "tokenizer.pard_token_invalid"),
    ("the mask is a text", {"pard_token": "15"}, "tokenizer.pard_token_invalid"),
    ("a PARD that is not whole", {"spd_type": "pard"}, "pard.token_invalid"),
    ("an embedding of other rows", {"rows": 17}, "tokenizer.embedding_rows"),
    ("a head of other rows", {"head": 15}, "tokenizer.head_rows"),
    ("no room for the highest id", {"vocab_size": 11}, "tokenizer.ids_outside"),
]


@pytest.mark.parametrize(("config", "code"), [c[1:] for c in ROLES], ids=[c[0] for c in ROLES])
def test_a_config_that_does_not_fit_the_tokenizer_is_refused(config: dict[str, Any], code: str, tmp_path: Path) -> None:
    s.write_tokenizer(tmp_path, ADDED, SIDE)
    s.write_draft(tmp_path, **{"vocab_size": 16} | CONFIG | config)
    with pytest.raises(Refused) as refused:
        borrow(tmp_path)
    assert codes(refused) == [code]


@pytest.mark.parametrize(
    "config",
    [{"pad_token_id": -1}, {"eos_token_id": [11, 10]}, {"bos_token_id": None}, {"pard_token": 15}, {"head": 16}],
)
def test_a_config_that_fits_passes(config: dict[str, Any], tmp_path: Path) -> None:
    s.write_tokenizer(tmp_path, ADDED, SIDE)
    s.write_draft(tmp_path, **{"vocab_size": 16} | CONFIG | config)
    assert all(check["passed"] for check in borrow(tmp_path).proof["checks"])


def test_an_end_token_without_an_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        borrow(own(tmp_path, {"eos_token": "<end>", "pad_token": "<pad>"}))
    assert codes(refused) == ["tokenizer.eos_unresolved"]


def test_all_findings_come_together(tmp_path: Path) -> None:
    s.write_tokenizer(tmp_path, ADDED, SIDE)
    s.write_draft(tmp_path, 16, **CONFIG | {"eos_token_id": 13, "pard_token": 3}, head=15)
    with pytest.raises(Refused) as refused:
        borrow(tmp_path)
    assert codes(refused) == ["tokenizer.head_rows", "tokenizer.pard_token_taken", "tokenizer.eos_absent"]


def test_weights_without_an_embedding_prove_nothing(tmp_path: Path) -> None:
    model = own(tmp_path)
    (model / "model.safetensors").unlink()
    with pytest.raises(Refused) as refused:
        borrow(model)
    assert codes(refused) == ["tokenizer.embedding_missing"]


@pytest.mark.parametrize("config", [None, {}, {"vocab_size": "16"}, {"vocab_size": 0}, {"vocab_size": True}])
def test_a_config_without_vocab_size_is_refused(config: dict[str, Any] | None, tmp_path: Path) -> None:
    model = own(tmp_path)
    (model / "config.json").unlink()
    if config is not None:
        (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused) as refused:
        borrow(model)
    assert codes(refused) == ["tokenizer.config"]


def test_a_donor_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    model = s.write_draft(tmp_path / "model", 16, **CONFIG)
    donor = tmp_path / "donor"
    donor.mkdir()
    with pytest.raises(Refused) as refused:
        borrow(model, donor, "a/b@main")
    assert codes(refused) == ["tokenizer.no_tokenizer_json"]


def test_a_padding_token_may_be_an_ordinary_piece(tmp_path: Path) -> None:
    proof = borrow(own(tmp_path, pad_token_id=3)).proof
    assert {"check": "pad", "passed": True, "measured": [3, "d"], "expected": "a token fit for pad"} in proof["checks"]


def test_an_end_token_that_the_tokenizer_itself_names_need_not_be_special(tmp_path: Path) -> None:
    proof = borrow(own(tmp_path, SIDE | {"eos_token": "d"}, eos_token_id=3)).proof
    assert proof["vocabulary"]["ids"]["eos"] == 3


def test_a_refusal_tells_the_ids_and_texts(tmp_path: Path) -> None:
    model = own(tmp_path, pard_token=3)
    side_file("added_tokens.json", {"<bos>": 10, "<eos>": 12})(model)
    with pytest.raises(Refused) as refused:
        borrow(model)
    told = {refusal.code: (refusal.where, refusal.measured, refusal.expected) for refusal in refused.value.refusals}
    assert told == {
        "tokenizer.files_disagree": ("added_tokens.json", ["<eos>", 12], 11),
        "tokenizer.pard_token_taken": ("config.json:pard_token", [3, "d"], "an id that is no token"),
    }


def test_a_foreign_own_tokenizer_is_a_remark_since_the_repository_is_its_authority(tmp_path: Path) -> None:
    model = s.write_draft(tmp_path, 151936, model_type="qwen3", bos_token_id=151643, eos_token_id=151645)
    s.write_tokenizer(model, s.QWEN2_5, {"eos_token": "<|im_end|>"})
    proof = borrow(model).proof
    assert proof["family"]["level"] == "ids only"
    assert (
        "the repository's own tokenizer is not that of Qwen3: id 151665 is '<tool_response>' there and no token here"
        in proof["remarks"]
    )


def test_ids_written_in_no_way_an_id_is_written_are_refused(tmp_path: Path) -> None:
    for key in ("1e1", "\u0661\u0661", "9" * 5000):
        model = own(tmp_path, SIDE | {"added_tokens_decoder": {key: {"content": "<eos>"}}})
        with pytest.raises(Refused) as refused:
            borrow(model)
        assert codes(refused) == ["tokenizer.files_disagree"]


def test_a_draft_that_can_be_of_two_families_says_so(tmp_path: Path) -> None:
    config = {"model_type": "llama", "bos_token_id": 128000, "eos_token_id": 128009}
    draft = s.write_draft(tmp_path / "draft", 128256, **config)
    donor = s.write_tokenizer(tmp_path / "donor", s.LLAMA3_1, {"eos_token": "<|eot_id|>"})
    two = borrow(draft, donor, "a/b@main").proof
    assert any(remark.startswith("the draft can be of") for remark in two["remarks"])
    scaled = s.write_draft(tmp_path / "scaled", 128256, **config, rope_scaling={"rope_type": "llama3"})
    assert borrow(scaled, donor, "a/b@main").proof["remarks"] == []
