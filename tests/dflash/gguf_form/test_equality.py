"""A draft written here is what llama.cpp's own converter writes: every tensor byte, every key but those of origin."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.conversion.account import account_path
from draftmill.dflash.conversion.convert import convert
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.geometry import Second
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.dflash.layout import Layout
from draftmill.dflash.rope import Rope
from draftmill.gguf.header import read_header
from draftmill.gguf.stock_script import StockScript
from draftmill.q4nx.encodings import Kind
from flows.demo.smollm2 import write_tokenizer
from tests.dflash.gguf_form.small import write_checkpoint
from tests.gguf.test_convert_equality import differences
from tests.support.checkpoints import config
from tests.support.dflash_packages import edit_config, real_draft, tiny
from tests.support.gemma_target import ROWS, write_gemma_target
from tests.support.inputs import smollm2_gguf
from tests.support.stock import convert_with_stock, stock_converter

SMOLLM2_ROWS = 49152
Content = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """changes: fields of the synthetic config, or of how its checkpoint is written. edit: of config.json. A target that
    is `GEMMA` has its vocabulary written by the stock converter alone."""

    generation: int
    target: str
    outtype: str
    changes: dict[str, Any] = field(default_factory=dict)
    edit: Callable[[Content], Content] | None = None


def causality_unstated(content: Content) -> Content:
    del content["dflash_config"]["causal"]
    return content


def layers_alone(content: Content) -> Content:
    del content["dflash_config"]["use_swa"]
    return content


_TWO = {"second": Second(2, 16, 8, 4)}
_YARN = {"factor": 4.0, "original_max_position_embeddings": 1024, "beta_fast": 16.0, "attention_factor": 1.1}
_FULL = {"layer_types": (FULL, FULL), "sliding_window": None}
_MIXED = {"layer_types": (FULL, SLIDING)}
GEMMA = "gemma"
CASES = {
    "a target whose vocabulary the native converter does not write": Case(1, GEMMA, "auto"),
    "generation 1, bf16, sliding": Case(1, "llama", "auto"),
    "generation 1, float32 to f16, yarn, names with a prefix, causality unstated, a target with several axes": Case(
        1,
        "axes",
        "f16",
        {"dtype": "F32", "rope": Rope(5e5, "yarn", _YARN), "names": "model.{}".format} | _FULL,
        causality_unstated,
    ),
    "generation 2, bf16, scales and softcap, a full layer and a sliding one": Case(
        2,
        GEMMA,
        "auto",
        _TWO
        | _MIXED
        | {"output_multiplier": 0.19611613513818404, "final_logit_softcapping": 20.0, "input_embedding_scale": 16},
    ),
    "generation 2, float16 to f32, causal": Case(2, GEMMA, "f32", _TWO | {"dtype": "F16", "causal": True}),
}
REAL = "the real small draft"
DECODED = {
    "a package of generation 1, decoded to a checkpoint": Case(1, GEMMA, "f32"),
    "a package of generation 2, decoded to a checkpoint": Case(
        2, GEMMA, "f32", {"second": Second(2, 16, 32, 4), "output_multiplier": 0.25} | _MIXED
    ),
}
"""Checkpoints that `draftmill dflash convert` makes: the stock converter takes them."""
DEPARTING = {
    "the window of a config that states layer_types alone": Case(1, GEMMA, "auto", _MIXED, layers_alone),
    "a full layer beside use_swa": Case(1, GEMMA, "auto", _MIXED),
}
"""Where the stock converter makes another draft: it drops the window, and slides every layer."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, Path]]:
    """{name: (checkpoint, our file, stock file)}."""
    root = tmp_path_factory.mktemp("dflash")
    (root / "tokenizer").mkdir()
    write_tokenizer(read_header(smollm2_gguf()).fields, root / "tokenizer")
    axes = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [11, 11, 10]}
    targets = {
        "llama": write_target(root / "llama", root / "tokenizer"),
        "axes": write_target(root / "axes", root / "tokenizer", rope_parameters=axes),
        GEMMA: write_gemma_target(root / GEMMA),
    }
    stock = stock_converter()
    vocabulary: Path | None = None
    made, jobs, of = {}, [], {}
    cases = CASES | DECODED | DEPARTING | ({REAL: Case(1, "llama", "auto")} if real_draft() else {})
    for number, (name, case) in enumerate(cases.items()):
        folder = root / f"draft-{number}"
        rows = ROWS if case.target == GEMMA else SMOLLM2_ROWS
        if name == REAL:
            shutil.copytree(real_draft(), folder)
        elif name in DECODED:
            package = root / f"package-{number}"
            layout = Layout(codebooks=Kind.BF16)  # a rank of 32 would take 224 columns of padding
            tiny(package, case.generation, vocab_size=rows, layout=layout, **case.changes)
            convert(package, folder, Form.HF)
        else:
            write_checkpoint(folder, case.generation, vocab_size=rows, **case.changes)
        if case.edit:
            edit_config(folder, case.edit)
        ours, theirs = root / f"{number}-ours.gguf", root / f"{number}-stock.gguf"
        if case.target == GEMMA and vocabulary is None:
            converter = StockScript(stock.script, stock.python)
            convert(folder, ours, Form.GGUF, target=targets[GEMMA], converter=converter, outtype=case.outtype)
            vocabulary = ours  # of this target, for the other drafts
        else:
            with Checkpoint.open(folder, causal=False if name in DEPARTING else None) as source:
                foreign = vocabulary if case.target == GEMMA else None
                write_gguf(source, targets[case.target], ours, vocabulary=foreign, outtype=case.outtype)
        jobs.append((folder, theirs, case.outtype))
        of[folder] = targets[case.target]
        made[name] = folder, ours, theirs
    convert_with_stock(jobs, of)
    return made


def write_target(folder: Path, tokenizer: Path, **changes: Any) -> Path:
    """A target with SmolLM2's vocabulary."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, folder)
    content = config("LlamaForCausalLM", vocab_size=SMOLLM2_ROWS, bos_token_id=1, eos_token_id=2, **changes)
    del content["hidden_size"], content["num_hidden_layers"]  # it is the target of drafts of many sizes
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.stock
@pytest.mark.parametrize("name", [*CASES, *DECODED, REAL])
def test_a_draft_is_what_the_stock_converter_writes_and_reads_as_it_was(made, name) -> None:
    if name not in made:
        pytest.skip("shared/data/smollm2-dflash is not here")
    folder, ours, theirs = made[name]
    assert differences(ours, theirs) == []
    with Checkpoint.open(folder) as source, GgufDraft.open(theirs) as draft:
        lost = {"num_target_layers", "output_multiplier"}  # no key in the standard; a float32
        for each in vars(source.config).keys() - lost - {"places", "remarks", "unknown"}:
            assert getattr(draft.config, each) == getattr(source.config, each), each
        assert draft.config.output_multiplier == pytest.approx(source.config.output_multiplier, rel=2**-24)


@pytest.mark.stock
def test_what_the_stock_converter_wrote_is_said_and_proven(made) -> None:
    _, ours, _ = made[next(iter(CASES))]
    said = json.loads(account_path(ours, Form.GGUF).read_text())["vocabulary"]
    assert (said["of"], said["by"][:6], said["proof"]["differences"]) == (GEMMA, "stock ", [])
    assert {"texts", "merges", "token_types", "scores", "bos", "add_bos"} <= set(said["proof"]["equal"])
    fields = read_header(ours).fields
    assert (fields["tokenizer.ggml.model"], len(fields["tokenizer.ggml.tokens"])) == ("gemma4", ROWS)


@pytest.mark.stock
def test_the_comparison_sees_one_changed_tap(made, tmp_path) -> None:
    _, ours, theirs = made["generation 1, bf16, sliding"]
    raw = bytearray(theirs.read_bytes())
    # Behind the key: its type (array), the elements' type and their number, then int32 2, 6 and 10.
    at = raw.index(b"dflash.target_layers") + len(b"dflash.target_layers") + 4 + 4 + 8
    assert list(raw[at : at + 4]) == [2, 0, 0, 0]
    raw[at] = 1
    (tmp_path / "changed.gguf").write_bytes(raw)
    assert differences(ours, tmp_path / "changed.gguf") == ["key dflash.target_layers / dflash.target_layers"]


@pytest.mark.stock
def test_where_the_stock_converter_makes_another_draft_ours_is_still_the_same(made) -> None:
    window, pattern = "dflash.attention.sliding_window", "dflash.attention.sliding_window_pattern"
    found = [[read_header(path).fields for path in made[name][1:]] for name in DEPARTING]
    assert [(ours[window], ours[pattern]) for ours, _ in found] == [(64, [False, True])] * 2
    assert [(theirs.get(window), theirs.get(pattern)) for _, theirs in found] == [(None, None), (64, [True, True])]
