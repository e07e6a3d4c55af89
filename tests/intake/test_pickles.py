"""Pickled weights, read as symbols: against files written by hand and by torch, and against hostile ones."""

import os
import pickle
import subprocess
from pathlib import Path

import pytest

from draftmill.intake.pickles import PickledTensor, scan
from tests.support import pickled
from tests.support.mutants import mutate

SHAPES = {"target_proj.weight": (4, 16), "target_proj.bias": (4,)}


def codes(path: Path) -> set[str]:
    return {refusal.code for refusal in scan(path, path.name)[1].refusals}


@pytest.mark.parametrize("write", [pickled.write_tensors, pickled.write_legacy])
def test_tensors_are_listed_without_unpickling(tmp_path: Path, write) -> None:
    path = tmp_path / "warp_model.bin"
    write(path, SHAPES)
    found, findings = scan(path, path.name)
    assert not findings
    assert found.tensors == tuple(PickledTensor(name, "BF16", shape) for name, shape in SHAPES.items())
    assert found.globals == (
        "torch._utils._rebuild_tensor_v2",
        "torch.BFloat16Storage",
        "collections.OrderedDict",
    )


@pytest.mark.stock
def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    from tests.support.stock import stock_converter

    code = """
import torch, sys
weights = {"target_proj.weight": torch.zeros(4, 16, dtype=torch.bfloat16)}
torch.save(weights, sys.argv[1] + "/zip.bin")
torch.save(weights, sys.argv[1] + "/legacy.bin", _use_new_zipfile_serialization=False)
torch.save({"model": torch.nn.Linear(3, 4).state_dict(), "step": 1}, sys.argv[1] + "/state.bin")
torch.save(torch.nn.Linear(3, 4), sys.argv[1] + "/module.bin")
"""
    subprocess.run([stock_converter().python, "-c", code, tmp_path], check=True, timeout=120)
    for name, kind in (("zip.bin", "zip"), ("legacy.bin", "legacy")):
        found, findings = scan(tmp_path / name, name)
        assert not findings
        assert found.format == kind
        assert found.tensors == (PickledTensor("target_proj.weight", "BF16", (4, 16)),)
    found, findings = scan(tmp_path / "state.bin", "state.bin")
    assert not findings
    assert found.tensors == (PickledTensor("model.weight", "F32", (4, 3)), PickledTensor("model.bias", "F32", (4,)))
    assert "intake.pickle_global" in codes(tmp_path / "module.bin")


class Touches:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_hostile_pickle_is_named_and_not_run(tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    hostile = pickle.dumps({"w": Touches(made)}, protocol)
    path = tmp_path / "warp_model.bin"
    pickled.write_archive(path, hostile, {})
    found, findings = scan(path, path.name)
    assert any(refusal.code == "intake.pickle_global" for refusal in findings.refusals)
    assert f"{os.name}.mkdir" in found.globals
    assert not made.exists()
    pickle.loads(hostile)
    assert made.exists(), "the pickle has to be one that does harm when it is loaded"


def test_a_hostile_pickle_in_any_part_of_the_older_form_is_named(tmp_path: Path) -> None:
    path = tmp_path / "warp_model.bin"
    pickled.write_legacy(path, SHAPES)
    sound = path.read_bytes()
    protocol = b"\x80\x02M\xe9\x03."
    assert sound.count(protocol) == 1
    path.write_bytes(sound.replace(protocol, b"\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00idtR."))
    assert codes(path) == {"intake.pickle_global"}


def test_a_name_hidden_behind_the_memo_is_named(tmp_path: Path) -> None:
    """STACK_GLOBAL takes its names from the stack, where a plain search for imports does not see them."""
    path = tmp_path / "warp_model.bin"
    hidden = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x30\x30h\x00h\x01\x93."
    pickled.write_archive(path, hidden.replace(b"\x30\x30", b""), {})
    assert "posix.system" in scan(path, path.name)[0].globals
    assert "intake.pickle_global" in codes(path)
    pickled.write_archive(path, hidden, {})
    assert codes(path) == {"intake.pickle_global", "intake.pickle_opcode"}


def test_allowed_names_may_only_be_called_as_torch_calls_them(tmp_path: Path) -> None:
    """torch.FloatStorage(10**12) would take all memory."""
    path = tmp_path / "warp_model.bin"
    called = pickled.name("torch", "FloatStorage") + b"(J\xff\xff\xff\x7ftR"
    pickled.write_archive(path, pickled.dictionary({"w": called}), {})
    assert codes(path) == {"intake.pickle_malformed"}


def test_a_tensor_that_reaches_outside_its_storage_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "warp_model.bin"
    for count, expected in ((4, set()), (3, {"intake.pickle_malformed"})):
        tensor = pickled.tensor("FloatStorage", "0", (2, 2), count)
        pickled.write_archive(path, pickled.dictionary({"w": tensor}), {"0": bytes(4 * count)})
        assert codes(path) == expected


def test_the_older_form_with_bytes_missing_or_left_over_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "warp_model.bin"
    pickled.write_legacy(path, SHAPES)
    sound = path.read_bytes()
    for spoiled in (sound[:-1], sound + b"\0"):
        path.write_bytes(spoiled)
        assert codes(path) == {"intake.pickle_storage"}


@pytest.mark.parametrize("write", [pickled.write_tensors, pickled.write_legacy])
def test_any_damage_ends_in_a_pass_or_findings(tmp_path: Path, write) -> None:
    path = tmp_path / "warp_model.bin"
    write(path, SHAPES)
    sound = path.read_bytes()
    endings = set()
    for mutant in mutate(sound, 1000, reach=len(sound)):
        path.write_bytes(mutant)
        endings |= codes(path) or {"pass"}
    assert "pass" in endings
    assert len(endings) > 4
