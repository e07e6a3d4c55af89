"""The inspection of whole folders: its facts, that it lists everything, and what it must not refuse."""

import hashlib
import json
import math
from pathlib import Path

import pytest

from draftmill.dflash.config import ARCHITECTURES
from draftmill.intake.config import DRAFTS
from draftmill.intake.model_folder import inspect
from tests.support import pickled
from tests.support.checkpoints import config, tensor_shapes, write_checkpoint
from tests.support.dflash_packages import SMALLEST, checkpoint
from tests.support.inputs import qwen3_tokenizer
from tests.support.malformed import donor, edit_json, setting, sharded, single

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "head_dim": 8}


def codes(folder: Path, role="model") -> list[str]:
    return sorted(refusal.code for refusal in inspect(folder, role).findings)


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_the_facts_of_a_sound_model(tmp_path: Path, architecture: str, dtype: str) -> None:
    write_checkpoint(tmp_path, architecture, tokenizer=None, dtype=dtype, **SIZES)
    intake = inspect(tmp_path)
    shapes = tensor_shapes(config(architecture, **SIZES))
    assert intake.findings == ()
    assert intake.architecture == architecture
    assert intake.weights_only
    weights = sum(map(math.prod, shapes.values()))
    assert intake.facts()["tensors"] == {
        "count": len(shapes),
        "weights": weights,
        "bytes": weights * (4 if dtype == "F32" else 2),
        "dtypes": {dtype: len(shapes)},
    }


def test_files_are_sorted_by_kind_and_pickles_carried_by_digest(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    single(folder)
    facts = inspect(folder).facts()
    assert not facts["weights_only"]
    assert facts["files"] == {
        "config": ["config.json"],
        "weights": ["model.safetensors"],
        "tokenizer": ["tokenizer.json", "tokenizer_config.json"],
        "notice": ["README.md"],
        "pickle": ["warp_model.bin"],
    }
    (warp,) = facts["pickles"]
    assert warp["sha256"] == hashlib.sha256((folder / "warp_model.bin").read_bytes()).hexdigest()
    assert warp["tensors"] == ({"name": "target_proj.weight", "dtype": "BF16", "shape": (4, 8)},)
    json.dumps(facts)


def test_all_findings_are_listed_not_the_first(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    (tmp_path / "model-00003-of-00003.safetensors").write_bytes(b"")
    (tmp_path / "modeling.py").write_text("print()")
    edit_json("config.json", setting(auto_map={"AutoModel": "x.Y"}, num_hidden_layers=0))(tmp_path)
    pickled.write_archive(tmp_path / "warp_model.bin", b"\x80\x02cposix\nsystem\n.", {})
    assert codes(tmp_path) == [
        "intake.auto_map",
        "intake.code_file",
        "intake.config_size",
        "intake.file_empty",
        "intake.pickle_global",
        "intake.shard_missing",
    ]


def test_a_gumiho_repository_lacks_a_config_and_has_only_pickled_weights(tmp_path: Path) -> None:
    pickled.write_tensors(tmp_path / "pytorch_model.bin", {"embed_tokens.weight": (4, 8)}, "FloatStorage")
    assert codes(tmp_path) == ["intake.config_missing", "intake.pickled_weights_only"]


def test_the_real_tokenizer_folder_is_a_sound_donor() -> None:
    intake = inspect(qwen3_tokenizer(), "donor")
    assert intake.findings == ()
    assert not intake.weights_only
    assert intake.tensors is None


def test_a_donor_needs_no_weights_but_its_config_must_not_name_code(tmp_path: Path) -> None:
    folder = tmp_path / "donor"
    donor(folder)
    assert codes(folder, "donor") == []
    (folder / "config.json").write_text(json.dumps({"architectures": ["MixtralForCausalLM"]}))
    assert codes(folder, "donor") == []
    edit_json("config.json", setting(auto_map={"AutoModel": "x.Y"}))(folder)
    assert codes(folder, "donor") == ["intake.auto_map"]


def test_a_dflash_checkpoint_enters_as_a_draft_alone_and_its_code_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "draft"
    checkpoint(folder, **SMALLEST)
    assert codes(folder, "draft") == []
    edit_json("config.json", setting(auto_map={"AutoModel": "dflash.Draft"}))(folder)
    assert codes(folder, "draft") == []
    assert codes(folder) == ["intake.architecture_unknown", "intake.auto_map"]
    (finding,) = (each for each in inspect(folder).findings if each.code == "intake.architecture_unknown")
    assert "draftmill dflash convert FOLDER OUT.gguf --to gguf --target TARGET" in finding.sentence
    (folder / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.Y", null]}}')
    (folder / "dflash.py").write_text("raise SystemExit('never run')")
    edit_json("config.json", setting(_attn_implementation="acme/kernel"))(folder)
    assert codes(folder, "draft") == ["intake.attention_implementation", "intake.auto_map", "intake.code_file"]


def test_a_model_is_no_draft_and_the_drafts_are_those_that_are_converted(tmp_path: Path) -> None:
    single(tmp_path / "model")
    assert codes(tmp_path / "model", "draft") == ["intake.architecture_unknown"]
    assert set(DRAFTS) == ARCHITECTURES.keys()


@pytest.mark.parametrize(
    "keys",
    [
        {"_attn_implementation_autoset": True},
        {"_attn_implementation": None},
        {"auto_map": None},
        {"trust_remote_code": False},
        {"quantization_config": None},
        {"pard_token": 151670, "spd_type": "pard2"},
    ],
    ids=str,
)
def test_keys_that_name_no_code_do_not_refuse(tmp_path: Path, keys: dict) -> None:
    folder = tmp_path / "model"
    single(folder)
    edit_json("config.json", setting(**keys))(folder)
    assert codes(folder) == []


def test_files_that_no_tool_reads_do_not_refuse(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    single(folder)
    (folder / ".gitattributes").write_text("*.bin filter=lfs\n")
    (folder / "figures").mkdir()
    (folder / "figures" / "speed (1).png").write_bytes(b"\x89PNG")
    (folder / "LICENSE").write_text("")
    (folder / "vocab.json").symlink_to("tokenizer.json")
    assert codes(folder) == []


def test_a_model_of_parts_with_its_index_is_sound(tmp_path: Path) -> None:
    sharded(tmp_path)
    assert codes(tmp_path) == []
    (tmp_path / "model.safetensors.index.json").unlink()
    assert codes(tmp_path) == []


def test_an_index_may_name_a_file_of_another_pattern(tmp_path: Path) -> None:
    """llama.cpp #16361: mtp.safetensors beside the numbered parts."""
    folder = tmp_path / "model"
    single(folder)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    assert codes(folder) == ["intake.weights_unlisted"]
    names = tensor_shapes(json.loads((folder / "config.json").read_text()))
    index = {"weight_map": dict.fromkeys(names, "weights.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert codes(folder) == []
