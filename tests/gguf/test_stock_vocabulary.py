"""A vocabulary by the stock converter is only taken where it is what tokenizer.json states."""

import json
import sys
from pathlib import Path

import pytest

from draftmill.gguf.header import read_header
from draftmill.gguf.stock_script import StockScript
from draftmill.gguf.stock_vocabulary import stock_vocabulary
from draftmill.outcome import MillError, Refused
from tests.support.gemma_target import ADDED, MERGES, PIECES, write_gemma_target

_WRITES = """
import sys
from gguf import GGUFWriter
target, out = (sys.argv[sys.argv.index(option) + 1] for option in ("--target-model-dir", "--outfile"))
assert "--vocab-only" in sys.argv and not __import__("glob").glob(target + "/*.safetensors*")
writer = GGUFWriter(out, "gemma4")
writer.add_tokenizer_model("gemma4")
writer.add_token_list({tokens})
writer.add_token_types({types})
writer.add_token_merges({merges})
writer.add_bos_token_id({bos})
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
"""
TOKENS = [*PIECES, *ADDED]
TYPES = [3] * 5 + [1] * (len(TOKENS) - 6) + [4]
RANKS = [" ".join(merge) for merge in MERGES]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = write_gemma_target(tmp_path / "target")
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def script(place: Path, tokens=TOKENS, merges=RANKS, bos=2) -> StockScript:
    """A stand-in for the converter, that writes what it is told."""
    path = place / "convert_hf_to_gguf.py"
    path.write_text(_WRITES.format(tokens=tokens, types=TYPES, merges=merges, bos=bos))
    return StockScript(path, Path(sys.executable))


def changed(token: int, text: str) -> list[str]:
    return [*TOKENS[:token], text, *TOKENS[token + 1 :]]


# The last token is an added one, of which some of the converter's classes write a space for each U+2581.
@pytest.mark.parametrize("tokens", [TOKENS, changed(len(TOKENS) - 1, "  ")], ids=["as stated", "rewritten"])
def test_what_tokenizer_json_states_is_taken_and_goes_afterwards(target, tmp_path, tokens) -> None:
    with stock_vocabulary(target, script(tmp_path, tokens)) as path:
        assert read_header(path).fields["tokenizer.ggml.tokens"] == tokens
    assert not path.exists()


DIFFERING = {
    "texts": {"tokens": changed(261, "¬")},
    "merges": {"merges": RANKS[::-1]},
    "bos": {"bos": 1},
}


@pytest.mark.parametrize("facet", DIFFERING)
def test_another_vocabulary_is_refused_by_what_differs(target, tmp_path, facet) -> None:
    with (
        pytest.raises(Refused) as refused,
        stock_vocabulary(target, script(tmp_path, **DIFFERING[facet])),
    ):
        pass
    (refusal,) = refused.value.refusals
    assert (refusal.code, refusal.where) == ("convert.vocabulary_differs", f"target/tokenizer.json:{facet}")
    written, stated = {
        "texts": ("'¬' at id 261", "'▁'"),
        "merges": ("'\\n \\n' at [0]", "'t h'"),
        "bos": ("1 at", "2"),
    }[facet]
    assert refusal.measured.startswith(f"llama.cpp's converter writes {written}")
    assert refusal.expected == stated


def test_the_converters_own_failure_is_told(target, tmp_path) -> None:
    path = tmp_path / "convert_hf_to_gguf.py"
    path.write_text("raise SystemExit('Model Gemma9ForCausalLM is not supported')")
    with pytest.raises(MillError) as error, stock_vocabulary(target, StockScript(path, Path(sys.executable))):
        pass
    assert error.value.code == "convert.architecture"
