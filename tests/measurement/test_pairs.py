"""The real engine speculates with exactly those pairs that our rule lets through; the made pairs are what they say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftmill.gguf.header import map_tensor, read_header
from draftmill.measurement.servers.did_speculate import did_speculate
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import xllamacpp
from draftmill.measurement.servers.server import Server
from draftmill.tokenizers.sources import compare_pair
from flows.demo.edited_gguf import Made, write_edited
from tests.support import pairs

PREFIX = "tokenizer.ggml."


def served(target: Path, draft: Path) -> Server:
    drafting = Drafting(draft, n_max=4, n_min=0, p_min=0.0)
    return Server(xllamacpp(), Settings(target, context=256, threads=1, draft=drafting), run="test")


def with_text(token: int, text: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(fields: dict[str, Any]) -> dict[str, Any]:
        tokens = list(fields[PREFIX + "tokens"])
        tokens[token] = text
        return {PREFIX + "tokens": tokens}

    return change


def with_keys(**keys: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda _: {PREFIX + name: value for name, value in keys.items()}


def without_last_merge(fields: dict[str, Any]) -> dict[str, Any]:
    return {PREFIX + "merges": fields[PREFIX + "merges"][:-1]}


def with_type(fields: dict[str, Any]) -> dict[str, Any]:
    types = list(fields[PREFIX + "token_type"])
    types[300] = 4
    return {PREFIX + "token_type": types}


@pytest.fixture(scope="module")
def changed(tmp_path_factory) -> Iterator[Callable[..., Path]]:
    """Makes the small draft with other keys, or with fewer rows."""
    folder = tmp_path_factory.mktemp("changed")

    def make(change: Callable[[dict[str, Any]], dict[str, Any]] | None, rows: int | None = None) -> Path:
        out = folder / f"{len(list(folder.iterdir()))}.gguf"
        source = pairs.small().draft
        if rows:
            pairs._write_selected(source, out, [0, 1], rows)
        else:
            header = read_header(source)
            tensors = [
                Made(t.name, t.shape, t.type, lambda t=t: np.asarray(map_tensor(source, t)))
                for t in header.tensors.values()
            ]
            write_edited(header, out, tensors, change(header.fields) if change else {})
        return out

    yield make
    for path in folder.iterdir():
        path.unlink()


BOS = with_keys(add_bos_token=True)
OTHER_BOS = with_keys(add_bos_token=True, bos_token_id=2)

# name: (target's change, draft's change, draft's rows, code of the refusal or None, start of the one remark or None)
CASES: dict[str, tuple[Any, Any, int | None, str | None, str | None]] = {
    "the same": (None, None, None, None, None),
    "another text at id 5": (None, with_text(5, "x5"), None, "pair_text", None),
    "another text at the last id": (None, with_text(4095, "the last"), None, "pair_text", None),
    "another text at id 4": (None, with_text(4, "x4"), None, None, "id 4 differs"),
    "128 rows fewer": (None, None, 4096 - 128, None, "token counts differ"),
    "129 rows fewer": (None, None, 4096 - 129, "pair_size", None),
    "a bos added by one": (None, BOS, None, "pair_add_bos", None),
    "another bos, added by both": (BOS, OTHER_BOS, None, "pair_bos", None),
    "another bos, added by none": (None, with_keys(bos_token_id=2), None, None, "bos ids differ"),
    "another eos": (None, with_keys(eos_token_id=0), None, None, "eos ids differ"),
    "another pre-tokenizer": (None, with_keys(pre="gpt-2"), None, None, "pre-tokenizers differ"),
    "a merge fewer": (None, without_last_merge, None, None, "merges differ"),
    "another token type": (None, with_type, None, None, "token types differ"),
}


@pytest.mark.parametrize(("ours", "theirs", "rows", "code", "remark"), CASES.values(), ids=CASES)
def test_the_engine_speculates_with_what_the_rule_lets_through(ours, theirs, rows, code, remark, changed):
    target, draft = changed(ours), changed(theirs, rows)
    pairing = compare_pair(target, draft)
    assert [refusal.code for refusal in pairing.refusals] == ([f"tokenizer.{code}"] if code else [])
    # Fewer rows also end the merges earlier.
    told = [each for each in pairing.remarks if rows is None or "merges" not in each]
    assert [each.startswith(remark or " ") for each in told] == ([True] if remark else [])
    with served(target, draft) as server:
        assert server.client.slots()[0].speculative is (code is None)


def test_a_draft_with_qwen3s_vocabulary_is_refused_and_dropped():
    target, draft = pairs.small().target, pairs.qwen3_draft()
    assert {refusal.code for refusal in compare_pair(target, draft).refusals} == {
        "tokenizer.pair_size",
        "tokenizer.pair_text",
    }
    with served(target, draft) as server:
        before = server.client.slots()
        sample = server.client.completion("One two three", 4, seed=1)
        assert before[0].speculative is False
        assert did_speculate(before, sample, server.log).cause == "vocabularies"


def test_the_small_pair_agrees_and_the_wrong_draft_does_not():
    prompt = "One two three four five"
    with Server(xllamacpp(), Settings(pairs.small().target, context=256, threads=1), run="test") as alone:
        expected = alone.client.completion(prompt, 64, seed=1).tokens
    accepted = {}
    for draft in (pairs.small().draft, pairs.small_wrong_draft()):
        with served(pairs.small().target, draft) as server:
            sample = server.client.completion(prompt, 64, seed=1)
            assert sample.tokens == expected
            assert sample.timings.draft_n is not None and sample.timings.draft_n_accepted is not None
            accepted[draft] = sample.timings.draft_n_accepted / sample.timings.draft_n
    assert accepted[pairs.small().draft] > 0.7
    assert accepted[pairs.small_wrong_draft()] < 0.1
