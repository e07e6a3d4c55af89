"""The demonstration's target is wider and computes the same."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from gguf.constants import GGMLQuantizationType

from draftmill.gguf.header import read_header
from draftmill.measurement.servers.flags import Settings
from draftmill.measurement.servers.providers import xllamacpp
from draftmill.measurement.servers.server import Server
from draftmill.outcome import BadConfiguration
from flows.demo import wide_target
from flows.demo.wide_target import build_pair, write_plain, write_wide
from tests.support import pairs

F16 = GGMLQuantizationType.F16


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """(plain, wide) in F16, of two layers."""
    folder = tmp_path_factory.mktemp("wide")
    source = pairs._small([0, 1])
    write_plain(source, folder / "plain.gguf", F16)
    write_wide(source, folder / "wide.gguf", F16)
    return folder / "plain.gguf", folder / "wide.gguf"


def tensors(path: Path) -> dict[str, np.ndarray]:
    return {tensor.name: np.asarray(tensor.data) for tensor in GGUFReader(path).tensors}


def test_new_rows_are_noise_new_columns_zero_and_the_rest_is_as_it_was(made):
    plain, wide = map(tensors, made)
    assert plain.keys() == wide.keys()
    for name, tensor in plain.items():
        old = wide[name][tuple(slice(size) for size in tensor.shape)]
        assert np.array_equal(old, tensor), name
        if "ffn_down" in name:
            assert wide[name].shape == (576, 8 * 1536)
            assert not wide[name][:, 1536:].any()
        elif "ffn_gate" in name or "ffn_up" in name:
            assert wide[name].shape == (8 * 1536, 576)
            # The mean of 6.2 million independent values of deviation 0.05 lies within 5 of its own deviations, 2e-5.
            noise = wide[name][1536:].astype(np.float64)
            assert abs(noise.mean()) < 1e-4
            assert noise.std() == pytest.approx(0.05, rel=0.01)
        else:
            assert wide[name].shape == tensor.shape
    gates = [wide[f"blk.{layer}.ffn_gate.weight"][1536:] for layer in (0, 1)]
    assert not np.array_equal(*gates)


def test_the_header_says_the_width(made):
    assert read_header(made[1]).fields["llama.feed_forward_length"] == 8 * 1536
    assert read_header(made[0]).fields["llama.feed_forward_length"] == 1536


def test_the_real_engine_says_the_same_with_both(made):
    told = []
    for path in made:
        with Server(xllamacpp(), Settings(path, context=256, threads=1), run="test") as server:
            told.append(server.client.completion("One two three", 48, seed=1).tokens)
    assert told[0] == told[1]
    assert len(set(told[0])) > 3


def test_the_bytes_are_the_same_each_time(made, tmp_path):
    write_wide(pairs._small([0, 1]), tmp_path / "again.gguf", F16)
    assert made[1].read_bytes() == (tmp_path / "again.gguf").read_bytes()


def test_a_pair_of_other_bytes_is_not_called_complete(tmp_path):
    with pytest.raises(BadConfiguration, match="sha256"):
        build_pair(pairs._small([0, 1]), tmp_path)
    assert not (tmp_path / ".complete").exists()


def test_a_pair_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    source = pairs._small([0, 1])
    for name, path in (("DRAFT_SHA256", pairs.small().draft), ("TARGET_SHA256", pairs.small().target)):
        monkeypatch.setattr(wide_target, name, hashlib.sha256(path.read_bytes()).hexdigest())
    first = build_pair(source, tmp_path)
    stamps = [path.stat().st_mtime_ns for path in (first.target, first.draft)]
    assert build_pair(source, tmp_path) == first
    assert [path.stat().st_mtime_ns for path in (first.target, first.draft)] == stamps
    first.draft.unlink()
    build_pair(source, tmp_path)
    assert first.draft.exists()
