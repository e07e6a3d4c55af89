"""The bounded safetensors header reader against the safetensors library and against damaged files."""

import json
from pathlib import Path

import pytest
import safetensors
from safetensors.numpy import load_file

from draftmill.intake.findings import MOST_OF_A_KIND
from draftmill.intake.safetensors_header import read_header
from draftmill.outcome import Refused
from tests.support.checkpoints import write_checkpoint
from tests.support.mutants import mutate

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "head_dim": 4}


def with_header(path: Path, header: dict, body: bytes = b"") -> Path:
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + body)
    return path


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_reads_what_the_safetensors_library_reads(tmp_path: Path, dtype: str) -> None:
    write_checkpoint(tmp_path, tokenizer=None, dtype=dtype, **SIZES)
    path = tmp_path / "model.safetensors"
    header, content = read_header(path), path.read_bytes()
    arrays = load_file(path)
    assert header.metadata == {"format": "pt"}
    assert header.tensors.keys() == arrays.keys()
    for name, entry in header.tensors.items():
        assert (entry.dtype, entry.shape) == (dtype, arrays[name].shape)
        assert content[entry.begin : entry.end] == arrays[name].tobytes()


def test_a_file_without_tensors_and_tensors_without_elements_are_sound(tmp_path: Path) -> None:
    assert read_header(with_header(tmp_path / "a", {"__metadata__": {}})).tensors == {}
    empty = {"dtype": "F32", "shape": [0, 7], "data_offsets": [0, 0]}
    header = read_header(with_header(tmp_path / "b", {"x": empty, "y": empty}))
    assert [entry.nbytes for entry in header.tensors.values()] == [0, 0]


def test_elements_of_less_than_a_byte_are_counted_in_bits(tmp_path: Path) -> None:
    entry = {"dtype": "F4", "shape": [3, 2], "data_offsets": [0, 3]}
    assert read_header(with_header(tmp_path / "a", {"x": entry}, bytes(3))).tensors["x"].nbytes == 3
    with pytest.raises(Refused, match="span_mismatch"):
        read_header(with_header(tmp_path / "b", {"x": entry | {"shape": [5]}}, bytes(3)))


def test_all_wrong_tensors_are_listed_and_a_million_are_counted(tmp_path: Path) -> None:
    wrong = {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}
    with pytest.raises(Refused) as caught:
        read_header(with_header(tmp_path / "a", {"x": wrong, "y": wrong | {"dtype": "?"}}))
    assert [refusal.code for refusal in caught.value.refusals] == ["intake.span_mismatch", "intake.dtype_unknown"]
    with pytest.raises(Refused) as caught:
        read_header(with_header(tmp_path / "b", {f"t{number}": wrong for number in range(1000)}))
    assert len(caught.value.refusals) == MOST_OF_A_KIND + 1
    assert caught.value.refusals[-1].measured == 1000


def test_a_name_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    entry = b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    (tmp_path / "a").write_bytes(len(entry).to_bytes(8, "little") + entry + b"\0")
    with pytest.raises(Refused, match="json_invalid"):
        read_header(tmp_path / "a")


def test_any_damage_ends_in_a_pass_or_a_refusal_and_nothing_passes_that_the_library_refuses(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, tokenizer=None, num_hidden_layers=1, **SIZES)
    sound = (tmp_path / "model.safetensors").read_bytes()
    reach = 8 + int.from_bytes(sound[:8], "little")
    endings = set()
    path = tmp_path / "mutant"
    for mutant in mutate(sound, 2500, reach):
        path.write_bytes(mutant)
        try:
            read_header(path)
        except Refused as refused:
            endings |= {refusal.code for refusal in refused.refusals}
            continue
        endings.add("pass")
        with safetensors.safe_open(path, framework="numpy"):
            pass
    assert len(endings) > 8, "the mutants have to reach most checks"
    assert "pass" in endings
