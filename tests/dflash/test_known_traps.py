"""Known traps of DFlash drafts: each is refused by its name, or costs acceptance on a real draft, measured here.

Acceptance is counted over the target's recorded greedy text, with the target's features of one pass: a loop's text is
that text whatever the draft says, so that only the draft differs. With the right setting the recorded rounds come out
again, which proves the count. Symptoms and causes: z-lab, vLLM, speculators, llama.cpp (dflash.md section 8).
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config import DraftConfig, parse_config
from draftmill.dflash.forward import Draft
from draftmill.dflash.forward.products import Weights
from draftmill.dflash.gguf_form.config_reading import read_gguf_config
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.outcome import Refused
from tests.support.dflash_packages import real_draft_or_skip
from tests.support.draft_arrays import Arrays
from tests.support.smollm2_target import smollm2_target

torch = pytest.importorskip("torch", reason="torch is not installed")

from draftmill.speculation.transformers_target import TransformersTarget  # noqa: E402

TAPS = (5, 14, 24)
AROUND = (4, 5, 6, 13, 14, 15, 23, 24, 25)
"""Every tapped layer with its neighbours."""
PAD, MASK, END_OF_TEXT = 2, 16, 0
BUDGET = 40
PROMPTS = (6,)


@dataclass(frozen=True)
class Text:
    """features: of each layer of AROUND, [positions, hidden], of prompt and text. accepted: as recorded, a round."""

    prompt: int
    tokens: list[int]
    features: dict[int, np.ndarray]
    accepted: list[int]


@dataclass(frozen=True)
class Bench:
    config: DraftConfig
    tensors: dict[str, np.ndarray]
    target: TransformersTarget
    texts: list[Text]

    def accepted(
        self,
        *,
        taps: tuple[int, ...] = TAPS,
        tensors: dict[str, np.ndarray] | None = None,
        change: Callable[[Draft], None] = lambda draft: None,
        prepare: Callable[[np.ndarray], np.ndarray] = lambda tap: tap,
        **config: Any,
    ) -> list[list[int]]:
        """Accepted drafts of each round of each text, with a draft that is changed so."""
        source = Arrays(replace(self.config, **config), tensors or self.tensors)
        draft = Draft(Weights(source, np.dtype(np.float32)))
        change(draft)
        return [
            self._rounds(draft, text, np.hstack([prepare(text.features[tap]) for tap in taps])) for text in self.texts
        ]

    def _rounds(self, draft: Draft, text: Text, features: np.ndarray) -> list[int]:
        masks = [draft.config.mask_token_id] * (draft.config.block_size - 1)
        cache = draft.cache()
        cache.extend(features[: text.prompt])
        rounds, done = [], 1
        while done < BUDGET:
            hidden = cache.forward_cached(self.target.embed([text.tokens[done - 1], *masks]))[1:]
            drafts = draft.walk(hidden, self.target.head(hidden), text.tokens[done - 1])
            right = drafts == text.tokens[done : done + len(drafts)]
            rounds.append(len(right) if right.all() else int(right.argmin()))
            first = text.prompt + done - 1
            done += rounds[-1] + 1
            cache.extend(features[first : first + rounds[-1] + 1])
        return rounds


def per_round(lists: list[list[int]]) -> float:
    """Accepted drafts per round."""
    return sum(map(sum, lists)) / sum(map(len, lists))


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_draft_or_skip()


@pytest.fixture(scope="module")
def bench(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    target = TransformersTarget.open(smollm2_target(tmp_path_factory), AROUND)
    recorded = json.loads((folder / "acceptance.json").read_text())["prompts"]
    texts = []
    for prompt in (recorded[number] for number in PROMPTS):
        features = target.prefill([*prompt["prompt_ids"], *prompt["greedy_ids"]]).features
        layers = dict(zip(AROUND, np.split(features, len(AROUND), axis=1), strict=True))
        texts.append(
            Text(
                len(prompt["prompt_ids"]),
                prompt["greedy_ids"],
                layers,
                [each - 1 for each in prompt["accepted"]],
            )
        )
    with Checkpoint.open(folder) as checkpoint:
        tensors = {name: checkpoint.decode(name) for name in checkpoint.tensors}
    return Bench(checkpoint.config, tensors, target, texts)


@pytest.fixture(scope="module")
def right(bench: Bench) -> float:
    """Accepted drafts per round with every setting right."""
    lists = bench.accepted()
    for found, text in zip(lists, bench.texts, strict=True):
        assert found == text.accepted[: len(found)], "the count is that of the recorded loop"
    return per_round(lists)


def refusals(folder: Path, change: dict[str, Any]) -> set[str]:
    """Codes that a config with other keys is refused with; None takes a key away."""
    content = json.loads((folder / "config.json").read_text())
    content |= {"dflash_config": dict(content["dflash_config"])}
    for key, value in change.items():
        section, _, name = key.rpartition(".")
        place = content[section] if section else content
        if value is None:
            place.pop(name)
        else:
            place[name] = value
    try:
        parse_config(content)
    except Refused as refused:
        return {refusal.code for refusal in refused.refusals}
    return set()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "the window is not stated": (
        {"layer_types": ["sliding_attention"] * 3, "use_sliding_window": True},
        "dflash.key_missing",
    ),
    "a window beside layers that do not slide": (
        {"sliding_window": 64, "use_sliding_window": True},
        "dflash.window_contradicted",
    ),
    "causality is not stated": (
        {"layer_types": ["sliding_attention"] * 3, "sliding_window": 64, "use_sliding_window": True, "is_causal": None},
        "dflash.causality_not_stated",
    ),
    "heads rotated by pairs": ({"rope_interleave": True}, "dflash.unsupported_key"),
    "heads rotated in part": ({"partial_rotary_factor": 0.25}, "dflash.unsupported_key"),
    "positions of several axes": ({"mrope_section": [16, 24, 24]}, "dflash.unsupported_key"),
    "a head of its own": ({"has_own_lm_head": True}, "dflash.unsupported_key"),
    "norms of single taps": ({"aux_hidden_norms": True}, "dflash.unsupported_key"),
    "no mask id": ({"dflash_config.mask_token_id": None}, "dflash.key_missing"),
    "no block size": ({"block_size": None}, "dflash.key_missing"),
    "taps stored as L+1": ({"aux_hidden_state_layer_ids": [6, 15, 25]}, "dflash.unsupported_key"),
}


@pytest.mark.parametrize("trap", REFUSED)
def test_a_config_that_says_so_is_refused_by_that_name_alone(folder, trap):
    change, code = REFUSED[trap]
    assert refusals(folder, {}) == set()
    assert refusals(folder, change) == {code}


@pytest.mark.parametrize("shift", [1, -1])
def test_taps_off_by_one_cost_acceptance(bench, right, shift):
    assert per_round(bench.accepted(taps=tuple(tap + shift for tap in TAPS))) < right


def test_a_window_that_the_draft_was_not_trained_with_costs_acceptance(bench, right):
    sliding = {"layer_types": ("sliding_attention",) * 3, "causal": False}
    assert per_round(bench.accepted(**sliding, sliding_window=4096)) == right, "as wide as the text it hides nothing"
    assert per_round(bench.accepted(**sliding, sliding_window=16)) < right


def test_causal_sliding_layers_cost_acceptance(bench, right):
    sliding = {"layer_types": ("sliding_attention",) * 3, "sliding_window": 4096}
    assert per_round(bench.accepted(**sliding, causal=False)) == right
    assert per_round(bench.accepted(**sliding, causal=True)) < right


def by_pairs(rows: np.ndarray) -> np.ndarray:
    """[..., heads * 64, ...]: rows so that turning halves turns neighbours: what an interleaved rotation computes."""
    heads = rows.reshape(-1, 64, *rows.shape[1:])
    return np.concatenate([heads[:, 0::2], heads[:, 1::2]], axis=1).reshape(rows.shape)


def test_the_targets_rotation_by_pairs_costs_acceptance(bench, right):
    turned = {
        name: by_pairs(values) if ".q_" in name or ".k_" in name else values for name, values in bench.tensors.items()
    }
    assert per_round(bench.accepted(tensors=turned)) < right
    # The control: only the rotation differs. Without one the order inside a head does not matter at all.
    features, block = bench.texts[0].features[4][:20], bench.target.embed([5, *[MASK] * 7])
    rows = []
    for tensors in (bench.tensors, turned):
        draft = Draft(Weights(Arrays(bench.config, tensors), np.dtype(np.float32)))
        draft._rotation.frequencies = np.zeros(32)
        rows.append(draft.forward(np.hstack([features] * len(TAPS)), block))
    np.testing.assert_allclose(*rows, rtol=1e-3, atol=1e-3)


def test_a_rotation_of_a_part_of_each_head_costs_acceptance(bench, right):
    def partly(draft: Draft) -> None:
        draft._rotation.frequencies[8:] = 0

    assert per_round(bench.accepted(change=partly)) < right


@pytest.mark.parametrize("mask", [PAD, END_OF_TEXT])
def test_the_pad_id_or_another_special_token_as_the_mask_costs_acceptance(bench, right, mask):
    """The pad id costs little here (its row is near the mask's: 1.81 against 1.85 a round over all prompts)."""
    assert bench.config.mask_token_id == MASK
    assert per_round(bench.accepted(mask_token_id=mask)) < right


def test_a_block_of_16_offers_more_and_a_smaller_share_is_accepted(bench, right):
    lists = bench.accepted(block_size=16)
    assert per_round(lists) / 15 < right / 7


def test_norms_of_single_taps_where_the_draft_has_none_or_the_other_way_cost_acceptance(bench, right):
    """The real draft has no such norms, so they are put in: what fc was not trained on, as when they are left out."""

    def normed(tap: np.ndarray) -> np.ndarray:
        return tap / np.sqrt(np.mean(np.square(tap, dtype=np.float64), axis=1, keepdims=True) + 1e-5)

    assert per_round(bench.accepted(prepare=normed)) < right


@pytest.mark.parametrize(
    ("name", "shape"), [("lm_head.weight", (8, 576)), ("aux_hidden_norms.0.weight", (576,)), ("d2t", (8,))]
)
def test_a_tensor_that_no_draft_has_is_refused_and_never_left_out(folder, tmp_path, name, shape):
    for file in ("config.json", "model.safetensors"):
        shutil.copy(folder / file, tmp_path)
    Checkpoint.open(tmp_path)
    save_file({name: np.zeros(shape, np.float32)}, tmp_path / "extra.safetensors")
    with safe_open(folder / "model.safetensors", "np") as sound:
        names = dict.fromkeys(sound.keys(), "model.safetensors") | {name: "extra.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    with pytest.raises(Refused) as caught:
        Checkpoint.open(tmp_path)
    assert {refusal.code for refusal in caught.value.refusals} == {"dflash.tensor_unexplained"}


GGUF_REFUSED: dict[str, tuple[str, Any, str]] = {
    "block size defaulted to 16": ("dflash.block_size", None, "dflash.gguf_key_missing"),
    "no mask id": ("tokenizer.ggml.mask_token_id", None, "dflash.gguf_key_missing"),
    "the target's sections of the rotation": (
        "dflash.rope.dimension_sections",
        [16, 24, 24, 0],
        "dflash.gguf_value_unsupported",
    ),
}


@pytest.fixture(scope="module")
def gguf(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "draft.gguf"
    with Checkpoint.open(folder) as checkpoint:
        write_gguf(checkpoint, smollm2_target(tmp_path_factory), path)
    return path


@pytest.fixture(scope="module")
def header(gguf: Path) -> GGUFHeader:
    return read_header(gguf)


def test_the_gguf_drafts_what_its_checkpoint_does(gguf, folder, bench):
    features = np.hstack([bench.texts[0].features[tap] for tap in TAPS])[:30]
    block = bench.target.embed([5, *[MASK] * 7])
    rows = []
    for place in (folder, gguf):
        with Draft.open(place) as draft:
            rows.append(draft.forward(features, block))
    assert np.array_equal(*rows)


@pytest.mark.parametrize("trap", GGUF_REFUSED)
def test_a_gguf_that_leaves_it_to_llama_cpp_is_refused(header, trap):
    key, value, code = GGUF_REFUSED[trap]
    assert read_gguf_config(header, "draft.gguf").target_layer_ids == TAPS
    fields = {name: each for name, each in header.fields.items() if name != key} | ({key: value} if value else {})
    with pytest.raises(Refused) as caught:
        read_gguf_config(replace(header, fields=fields), "draft.gguf")
    assert {refusal.code for refusal in caught.value.refusals} == {code}


def test_taps_are_stored_as_inputs_of_the_next_layer_and_read_back_as_outputs(header):
    assert header.fields["dflash.target_layers"] == [tap + 1 for tap in TAPS]


@pytest.mark.parametrize(("key", "said"), [("pad_token_id", True), ("eos_token_id", True), ("bos_token_id", False)])
def test_a_mask_id_that_is_the_pad_id_is_remarked_on(folder, key, said):
    content = json.loads((folder / "config.json").read_text())
    assert "dflash.mask_is_pad" not in {remark.code for remark in parse_config(content).remarks}
    codes = {remark.code for remark in parse_config(content | {key: MASK}).remarks}
    assert ("dflash.mask_is_pad" in codes) == said
