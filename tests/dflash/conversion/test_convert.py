"""What is converted, what is refused by which name, and that nothing is ever half-written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from draftmill.dflash.config import read_config
from draftmill.dflash.conversion.account import Account
from draftmill.dflash.conversion.form import Form, recognise
from draftmill.dflash.gate import gate
from draftmill.dflash.gate_result import Verdict
from draftmill.dflash.rope import Rope
from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration, Refused
from draftmill.q4nx.encodings import Kind
from tests.dflash.conversion.forms import (
    SMALL,
    TINY_VOCAB,
    container,
    safetensors,
    to,
    write_hf,
    write_package,
    write_target,
)
from tests.dflash.gguf_form.small import write_draft
from tests.support.dflash_packages import edit_config, edit_container


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """hf, p and draft.gguf: one small draft in each form (the GGUF another one); target: theirs."""
    place = tmp_path_factory.mktemp("drafts")
    write_hf(place / "hf")
    write_package(place / "p")
    write_target(place / "target")
    write_draft(place / "gguf", **{key: value for key, value in SMALL.items() if key != "vocab_size"})
    shutil.copy(place / "gguf" / "draft.gguf", place)
    return place


def refusals(call: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(Refused) as refused:
        call()
    return [(each.code, each.where) for each in refused.value.refusals]


def test_a_form_is_told_by_what_is_in_it(made: Path, tmp_path: Path) -> None:
    assert [recognise(made / name) for name in ("hf", "p", "draft.gguf")] == [Form.HF, Form.Q4NX, Form.GGUF]
    shutil.copy(made / "draft.gguf", tmp_path / "model.safetensors")
    assert recognise(tmp_path / "model.safetensors") == Form.GGUF
    shutil.copytree(made / "p", tmp_path / "hf")
    (tmp_path / "hf" / "model.q4nx").rename(tmp_path / "hf" / "weights.q4nx")
    assert recognise(tmp_path / "hf") == Form.Q4NX


def test_a_package_that_its_own_list_disproves_is_not_converted(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "p", tmp_path / "p")
    path = tmp_path / "p" / "model.q4nx"
    content = bytearray(path.read_bytes())
    content[-9] ^= 16  # still a package that opens
    path.write_bytes(content)
    assert refusals(lambda: to("hf", tmp_path / "p", tmp_path / "out")) == [("dflash.not_vouched", "model.q4nx")]
    assert not (tmp_path / "out").exists()
    (tmp_path / "p" / "MANIFEST.sha256").unlink()
    to("hf", tmp_path / "p", tmp_path / "out")


def test_a_shard_that_an_index_names_and_nobody_has_is_told_once(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "hf", tmp_path / "hf")
    (tmp_path / "hf" / "model.safetensors").rename(tmp_path / "hf" / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"fc.weight": "model-00001-of-00002.safetensors", "x": "model-00002-of-00002.safetensors"}}
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusals(lambda: to("gguf", tmp_path / "hf", tmp_path / "d.gguf", target=made / "target")) == [
        ("dflash.weights_missing", "model.safetensors.index.json:model-00002-of-00002.safetensors")
    ]


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"fc.weight": ["x"]}}])
def test_an_index_that_names_no_file_is_a_refusal(made: Path, tmp_path: Path, index: dict[str, Any]) -> None:
    shutil.copytree(made / "hf", tmp_path / "hf")
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert refusals(lambda: to("gguf", tmp_path / "hf", tmp_path / "d.gguf", target=made / "target"))


def test_below_a_file_nothing_is_written(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadConfiguration, match=f"{tmp_path / 'file'} is no folder"):
        to("hf", made / "p", tmp_path / "file" / "deep" / "out")
    assert (tmp_path / "file").read_text() == "mine"


def test_an_account_that_is_there_is_not_overwritten(made: Path, tmp_path: Path) -> None:
    (tmp_path / "d.conversion.json").write_text("mine")
    with pytest.raises(BadConfiguration, match=r"d\.conversion\.json is there already"):
        to("gguf", made / "p", tmp_path / "d.gguf", target=made / "target")
    assert [path.name for path in tmp_path.iterdir()] == ["d.conversion.json"]


def as_package(folder: Path) -> None:
    edit_config(folder, lambda content: content | {"model_type": "dflash"})


WRONG: dict[str, tuple[str, Callable[[Path, Path], Path], str]] = {
    "nothing there": ("source_missing", lambda made, at: at / "absent", "name a draft's folder"),
    "weights alone": ("source_not_gguf", lambda made, at: made / "hf" / "model.safetensors", "name the folder"),
    "a container alone": ("source_not_gguf", lambda made, at: made / "p" / "model.q4nx", "name the folder"),
    "an empty folder": ("source_not_a_draft", lambda made, at: at, "config.json beside safetensors"),
    "a folder around a GGUF": ("source_not_a_draft", lambda made, at: made / "gguf", "Name the GGUF file itself"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_draft_is_refused_with_a_sentence(what: str, made: Path, tmp_path: Path) -> None:
    code, source, sentence = WRONG[what]
    with pytest.raises(Refused) as refused:
        to("hf", source(made, tmp_path), tmp_path / "out")
    (refusal,) = refused.value.refusals
    assert refusal.code == f"dflash.{code}"
    assert sentence in refusal.sentence
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["hf", "p"])
def test_a_config_of_one_form_beside_weights_of_another_is_refused(form: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / form, tmp_path / "d")
    edit_config(tmp_path / "d", lambda content: content | {"model_type": "dflash" if form == "hf" else "qwen3"})
    assert refusals(lambda: recognise(tmp_path / "d")) == [("dflash.source_contradicted", "d")]


def test_a_targets_folder_is_no_draft(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "target", tmp_path / "t")
    shutil.copy(made / "hf" / "model.safetensors", tmp_path / "t")
    found = refusals(lambda: to("q4nx", tmp_path / "t", tmp_path / "out", encoding=Kind.Q4_1))
    assert ("dflash.architecture_unknown", "config.json:architectures") in found


@pytest.mark.parametrize("key", ["sample_from_anchor", "has_own_lm_head", "attention_bias"])
def test_what_changes_the_draft_is_refused_by_its_key(key: str, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "hf", tmp_path / "d")
    edit_config(tmp_path / "d", lambda content: content | {key: True})
    for form in ("gguf", "hf", "q4nx"):
        found = refusals(lambda form=form: to(form, tmp_path / "d", tmp_path / f"out.{form}"))
        assert found == [("dflash.unsupported_key", f"config.json:{key}")]


def test_causality_that_is_not_stated_has_to_be_told_and_is_carried(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "hf", tmp_path / "d")

    def forget(content: dict[str, Any]) -> dict[str, Any]:
        del content["dflash_config"]["causal"]
        return content

    edit_config(tmp_path / "d", forget)
    target = made / "target"
    assert refusals(lambda: to("gguf", tmp_path / "d", tmp_path / "d.gguf", target=target)) == [
        ("dflash.causality_not_stated", "config.json:is_causal")
    ]
    to("gguf", tmp_path / "d", tmp_path / "d.gguf", target=target, causal=True)
    to("hf", tmp_path / "d.gguf", tmp_path / "back")
    assert json.loads((tmp_path / "back" / "config.json").read_text())["is_causal"] is True


HELD_BY_NO_GGUF: list[tuple[dict[str, Any], str, str]] = [
    (
        {"num_hidden_layers": 2, "layer_types": ("full_attention", "sliding_attention"), "causal": True},
        "dflash.gguf_causal_full_layers",
        "is_causal",
    ),
    ({"max_position_embeddings": None}, "dflash.key_missing", "max_position_embeddings"),
    (
        {"rope": Rope(1e6, "yarn", {"factor": 4.0, "original_max_position_embeddings": 4096, "mscale": 1.0})},
        "dflash.gguf_rope_scaling",
        "rope_scaling.mscale",
    ),
]


@pytest.mark.parametrize(("changes", "code", "key"), HELD_BY_NO_GGUF)
def test_what_a_gguf_cannot_hold_is_refused_by_its_key_and_held_by_the_others(
    changes: dict[str, Any], code: str, key: str, made: Path, tmp_path: Path
) -> None:
    source = write_hf(tmp_path / "hf", **changes)
    assert refusals(lambda: to("gguf", source, tmp_path / "d.gguf", target=made / "target")) == [(code, f"hf:{key}")]
    to("q4nx", source, tmp_path / "p", encoding=Kind.BLOCK_BF16)
    to("hf", tmp_path / "p", tmp_path / "back")
    assert read_config(tmp_path / "back") == read_config(source)
    assert sorted(os.listdir(tmp_path)) == ["back", "hf", "p"]


def test_a_draft_in_this_folder_has_the_folders_name(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made / "hf")
    to("gguf", Path("."), tmp_path / "d.gguf", target=Path("..") / "target")
    assert GGUFReader(tmp_path / "d.gguf").fields["general.name"].contents() == "Hf"


def test_floats_are_not_quantised_unasked(made: Path, tmp_path: Path) -> None:
    assert refusals(lambda: to("q4nx", made / "hf", tmp_path / "p")) == [
        ("dflash.encoding_not_stated", "layers.0.self_attn.q_proj.weight")
    ]
    account = to("q4nx", made / "hf", tmp_path / "p", encoding=Kind.Q4_1)
    quantised = [each for each in account.tensors if each.how.value == "quantised"]
    assert len(quantised) == 7
    assert all(0.05 < (each.relative_rms or 0) < 0.09 for each in quantised)
    assert gate(tmp_path / "p").verdict == Verdict.PASS


def test_what_the_gate_refuses_is_not_written(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "p", tmp_path / "p")
    edit_container(tmp_path / "p", lambda tensors: tensors["model.fc.weight"].data[: 1 << 16].fill(0))
    assert {code for code, _ in refusals(lambda: to("q4nx", tmp_path / "p", tmp_path / "out"))} == {"gate.not_whole"}
    assert sorted(os.listdir(tmp_path)) == ["p"]


def test_a_number_that_is_none_is_not_carried_on(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "p", tmp_path / "p")
    name = "model.layers.0.mlp.up_proj.weight"
    edit_container(tmp_path / "p", lambda tensors: tensors[name].data[:2].view("<u2").fill(0x7FC0))
    assert refusals(lambda: to("hf", tmp_path / "p", tmp_path / "out")) == [
        ("dflash.not_finite", name.removeprefix("model."))
    ]
    edit_container(tmp_path / "p", lambda tensors: tensors[name].data[:2].view("<u2").fill(0x3C00))
    edit_container(tmp_path / "p", lambda tensors: tensors[name].data[46:48].view("<u2").fill(0x7FC0))
    with pytest.raises(Refused, match=r"the first in row 23:"):  # scales of a group: 32 outputs side by side
        to("hf", tmp_path / "p", tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["p"]


def test_a_gguf_needs_a_target_of_the_drafts_vocabulary(made: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as error:
        to("gguf", made / "hf", tmp_path / "d.gguf")
    assert error.value.code == "dflash.target_needed"
    other = write_target(tmp_path / "other", vocab_size=TINY_VOCAB + 4)
    assert refusals(lambda: to("gguf", made / "hf", tmp_path / "d.gguf", target=other)) == [
        ("dflash.vocabulary_size", "hf")
    ]
    assert sorted(os.listdir(tmp_path)) == ["other"]


def renamed_token(folder: Path) -> Path:
    """The target with one token's text changed."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    text = next(text for text, token in vocabulary.items() if token == 9)
    content["model"]["vocab"] = {("another" if each == text else each): token for each, token in vocabulary.items()}
    path.write_text(json.dumps(content))
    return folder


def test_a_draft_with_a_vocabulary_of_its_own_needs_the_same_of_its_target(made: Path, tmp_path: Path) -> None:
    account = to("gguf", made / "draft.gguf", tmp_path / "same.gguf", target=made / "target")
    assert account.vocabulary and account.vocabulary["source"]["differences"] == []
    shutil.copytree(made / "target", tmp_path / "target")
    renamed_token(tmp_path / "target")
    with pytest.raises(Refused) as refused:
        to("gguf", made / "draft.gguf", tmp_path / "d.gguf", target=tmp_path / "target")
    assert refused.value.code == "dflash.vocabulary_differs"
    assert "id 9" in refused.value.refusals[0].measured
    shutil.copytree(made / "hf", tmp_path / "hf")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(made / "target" / name, tmp_path / "hf")
    assert refusals(lambda: to("gguf", tmp_path / "hf", tmp_path / "d.gguf", target=tmp_path / "target"))[0] == (
        "dflash.vocabulary_differs",
        "hf:texts",
    )
    assert not (tmp_path / "d.gguf").exists()
    assert not (tmp_path / "d.conversion.json").exists()


def test_a_gguf_keeps_its_own_vocabulary_where_no_target_is_given(made: Path, tmp_path: Path) -> None:
    account = to("gguf", made / "draft.gguf", tmp_path / "d.gguf")
    assert account.vocabulary and account.vocabulary["proof"]["level"] in ("whole", "stated")
    assert json.loads((tmp_path / "d.conversion.json").read_text())["exact"] is True


def test_keys_that_nobody_reads_are_told(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "hf", tmp_path / "d")
    edit_config(tmp_path / "d", lambda content: content | {"strange_key": 1})
    account = to("hf", tmp_path / "d", tmp_path / "out")
    assert account.left_behind == ("strange_key",)
    assert "strange_key" not in json.loads((tmp_path / "out" / "config.json").read_text())


def test_licences_come_along(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "hf", tmp_path / "d")
    (tmp_path / "d" / "NOTICE").write_text("terms")
    to("q4nx", tmp_path / "d", tmp_path / "p", encoding=Kind.BLOCK_BF16)
    to("hf", tmp_path / "p", tmp_path / "back")
    assert (tmp_path / "back" / "NOTICE").read_text() == "terms"
    listed = {line.split("  ")[1] for line in (tmp_path / "p" / "MANIFEST.sha256").read_text().splitlines()}
    assert listed == {"config.json", "conversion.json", "model.q4nx", "NOTICE"}


def test_norms_beyond_bfloat16_are_kept_in_generation_2(tmp_path: Path) -> None:
    source = write_hf(tmp_path / "hf", 2, dtype="F32", vocab_size=320)
    to("q4nx", source, tmp_path / "p", encoding=Kind.Q4_K)
    label, _, data = container(tmp_path / "p")["model.norm.weight"]
    assert (label, data) == ("F32", safetensors(source)["norm.weight"][2])


@pytest.mark.parametrize("form", ["gguf", "hf", "q4nx"])
def test_nothing_is_overwritten_and_an_interrupted_run_leaves_nothing(form: str, made: Path, tmp_path: Path) -> None:
    out = tmp_path / ("out.gguf" if form == "gguf" else "out")
    options = {"target": made / "target"} if form == "gguf" else {}

    def interrupted(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to(form, made / "p", out, progress=interrupted, **options)
    assert os.listdir(tmp_path) == []
    seen: list[tuple[int, int]] = []
    to(form, made / "p", out, progress=lambda what, done, total: seen.append((done, total)), **options)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(BadConfiguration, match="is there already"):
        to(form, made / "p", out, **options)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


KILLED = """
import os, signal, sys
from pathlib import Path
from draftmill.dflash.conversion.convert import convert
from draftmill.dflash.conversion.form import Form
def killed(what, done, total):
    if done > total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
source, out, form, target = sys.argv[1:]
convert(Path(source), Path(out), Form(form), target=Path(target) if form == "gguf" else None, progress=killed)
"""


def test_what_a_killed_run_leaves_the_next_one_removes(made: Path, tmp_path: Path) -> None:
    for form in ("gguf", "hf", "q4nx"):
        out = tmp_path / f"out.{form}"
        target = made / "target" if form == "gguf" else None
        command = [sys.executable, "-c", KILLED, made / "p", out, form, target or ""]
        assert subprocess.run(command, check=False, timeout=60).returncode == -signal.SIGKILL
        assert not out.exists()
        assert [name for name in os.listdir(tmp_path) if name.startswith(f".{out.name}.")]
        to(form, made / "p", out, target=target)
    assert sorted(os.listdir(tmp_path)) == ["out.conversion.json", "out.gguf", "out.hf", "out.q4nx"]


@pytest.mark.parametrize("form", ["gguf", "hf", "q4nx"])
def test_of_two_that_write_one_name_the_second_to_end_is_told(form: str, made: Path, tmp_path: Path) -> None:
    out = tmp_path / f"out.{form}"
    target = made / "target" if form == "gguf" else None
    meanwhile: list[Account] = []

    def also(*_: Any) -> None:
        if not meanwhile:
            meanwhile.append(to(form, made / "p", out, target=target))

    with pytest.raises(BadConfiguration) as error:
        to(form, made / "p", out, target=target, progress=also)
    assert error.value.code == "dflash.output_exists"
    for file in meanwhile[0].out:
        assert sha256_file(out if form == "gguf" else out / file.path) == file.sha256
    assert sorted(os.listdir(tmp_path)) == (["out.conversion.json", "out.gguf"] if form == "gguf" else [out.name])


def test_a_gguf_is_called_one(made: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration) as error:
        to("gguf", made / "hf", tmp_path / "d.conversion.json", target=made / "target")
    assert error.value.code == "dflash.output_name"


def test_the_targets_files_are_in_the_account_and_one_that_is_missing_is_remarked(made: Path, tmp_path: Path) -> None:
    account = to("gguf", made / "hf", tmp_path / "d.gguf", target=made / "target")
    assert account.vocabulary
    files = {file["path"]: file["sha256"] for file in account.vocabulary["files"]}
    assert files.keys() >= {"config.json", "tokenizer.json", "tokenizer_config.json"}
    assert all(sha256_file(made / "target" / name) == digest for name, digest in files.items())
    shutil.copytree(made / "target", tmp_path / "t")
    (tmp_path / "t" / "tokenizer_config.json").unlink()
    less = to("gguf", made / "hf", tmp_path / "e.gguf", target=tmp_path / "t")
    assert set(less.remarks) - set(account.remarks) == {
        "t: no tokenizer_config.json, which says what begins and ends a text; the GGUF may not"
    }


def test_a_checkpoint_says_what_transformers_asks_of_its_file(made: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    to("hf", made / "p", tmp_path / "hf")
    with safe_open(tmp_path / "hf" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert set(file.keys()) == set(safetensors(made / "hf"))
