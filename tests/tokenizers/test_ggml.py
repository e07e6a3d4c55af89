"""Reading a GGUF's vocabulary, and comparing it with the tokenizer.json it came from."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from tokenizers import Tokenizer, models

from draftmill.outcome import Refused
from draftmill.tokenizers.ggml import read_gguf
from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.tokenizers.identity import compare
from tests.support.inputs import qwen3_tokenizer, smollm2_gguf
from tests.tokenizers import synthetic as s

NORMAL, CONTROL, USER, UNUSED = 1, 3, 4, 5


def write_gguf(path: Path, tokens: list[str], types: list[Any], **keys: Any) -> Path:
    """A GGUF without tensors; keys go below tokenizer.ggml."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(keys.pop("model", "gpt2"))
    writer.add_token_list(tokens)
    writer.add_array("tokenizer.ggml.token_type", types)
    for name, value in keys.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        add[type(value)](f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def smollm2() -> dict[str, list[Any]]:
    """Tokens, types and merges of SmolLM2 as the gguf library reads them (which takes seconds)."""
    fields = gguf.GGUFReader(smollm2_gguf()).fields
    return {name: fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")}


def test_smollm2_is_read_as_gguf_reads_it(smollm2: dict[str, list[Any]]) -> None:
    vocabulary = read_gguf(smollm2_gguf())
    assert list(vocabulary.texts.values()) == smollm2["tokens"]
    assert vocabulary.stated["merges"] == smollm2["merges"]
    assert (vocabulary.kind, vocabulary.pre, vocabulary.size) == ("BPE", "smollm", 49152)
    assert (vocabulary.ids["bos"], vocabulary.ids["eos"], vocabulary.add_bos) == (1, 2, False)
    assert vocabulary.added[2].text == "<|im_end|>"


def test_a_gguf_and_its_tokenizer_json_agree_as_far_as_both_speak(
    smollm2: dict[str, list[Any]], tmp_path: Path
) -> None:
    words, kinds = smollm2["tokens"], smollm2["token_type"]
    merges = [tuple(merge.split(" ")) for merge in smollm2["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={word: token for token, word in enumerate(words)}, merges=merges))
    tokenizer.add_special_tokens([word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    converted = read_gguf(smollm2_gguf())
    comparison = compare(converted, read_tokenizer(tmp_path))
    assert comparison.level == "stated"
    assert {"texts", "added", "merges", "kind"} <= set(comparison.equal)
    assert {"added_flags", "normalizer", "pre_tokenizer", "post_processor", "decoder"} <= set(comparison.not_comparable)
    assert compare(converted, read_tokenizer(qwen3_tokenizer())).level == "none"


def test_padding_is_rows_and_not_tokens(tmp_path: Path) -> None:
    tokens = ["a", "b", "<x>", "[PAD3]", "[PAD9]", ""]
    path = write_gguf(tmp_path / "v.gguf", tokens, [NORMAL, NORMAL, CONTROL, UNUSED, UNUSED, NORMAL], merges=["a b"])
    vocabulary = read_gguf(path)
    assert vocabulary.texts == {0: "a", 1: "b", 2: "<x>", 4: "[PAD9]", 5: "[EMPTY_5]"}
    assert (vocabulary.size, [vocabulary.text(token) for token in range(6)]) == (6, [*tokens[:5], "[EMPTY_5]"])


def test_an_id_outside_the_list_is_not_stated(tmp_path: Path) -> None:
    keys = {"bos_token_id": 1, "eos_token_id": 2, "padding_token_id": True, "unknown_token_id": "a"}
    path = write_gguf(tmp_path / "v.gguf", ["a", "b"], [NORMAL, CONTROL], **keys)
    assert read_gguf(path).ids == {"bos": 1}


@pytest.mark.parametrize("stated", [{}, {"pre": "default"}])
def test_gemma_4_merges_by_its_own_rule_whatever_the_key_says(stated: dict[str, Any], tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "v.gguf", ["a", "b"], [NORMAL, NORMAL], model="gemma4", merges=["a b"], **stated)
    assert (read_gguf(path).kind, read_gguf(path).pre) == ("BPE", "gemma4")


REFUSED = [
    ("tokenizer.gguf_model", ["a"], [NORMAL], {"model": "none"}),
    ("tokenizer.gguf_types", ["a", "b"], [NORMAL], {}),
    ("tokenizer.gguf_types", ["a", "b"], ["normal", "normal"], {}),
    ("tokenizer.gguf_scores", ["a", "b"], [NORMAL, NORMAL], {"scores": [0.5]}),
    ("tokenizer.gguf_scores", ["a"], [NORMAL], {"scores": [1]}),
    ("tokenizer.gguf_merges", ["a"], [NORMAL], {"merges": [0.5]}),
    ("tokenizer.gguf_merges", ["a"], [NORMAL], {"merges": "a b"}),
    ("tokenizer.gguf_text_twice", ["a", "a"], [NORMAL, NORMAL], {}),
]


@pytest.mark.parametrize(("code", "tokens", "types", "keys"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_vocabulary_that_the_runtime_would_not_load_is_refused(
    code: str, tokens: list[str], types: list[Any], keys: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(Refused) as refused:
        read_gguf(write_gguf(tmp_path / "v.gguf", tokens, types, **keys))
    assert refused.value.code == code


def test_a_gguf_without_tokens_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "v.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(Refused) as refused:
        read_gguf(tmp_path / "v.gguf")
    assert refused.value.code == "tokenizer.gguf_tokens"


def test_a_converted_file_and_the_tokenizer_it_came_from_pair(tmp_path: Path) -> None:
    from draftmill.tokenizers.pairing import pair

    folder = s.write_tokenizer(tmp_path, {12: "<x>"}, {"add_bos_token": False})
    tokens = [*"abcdefghij", "[PAD10]", "[PAD11]", "<x>", "[PAD13]"]
    types = [NORMAL] * 10 + [UNUSED, UNUSED, CONTROL, UNUSED]
    converted = read_gguf(write_gguf(tmp_path / "v.gguf", tokens, types, add_bos_token=False, merges=["a b"]))
    assert pair(converted, read_tokenizer(folder).padded(14)).refusals == ()
