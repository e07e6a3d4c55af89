"""Damaged packages: the gate ends each time in a verdict with named reasons, and never in another exception."""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftmill.dflash.config import Second
from draftmill.dflash.config_kinds import FULL
from draftmill.dflash.gate import gate
from draftmill.dflash.gate_result import Gate, Outcome, Verdict
from tests.support.dflash_packages import tiny
from tests.support.mutants import mutate

MUTANTS = 20_000
SMALLEST: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 32, "target_layer_ids": (1, 5), "sliding_window": None,
    "layer_types": (FULL,),
}  # fmt: skip
MEMORY = 64 << 20
"""Bytes that the process may grow by; the package has forty thousand."""


def smallest(folder: Path, generation: Literal[1, 2], **how: Any) -> Path:
    changes = dict(SMALLEST)
    if generation == 2:
        changes["second"] = Second(2, 2, 32, 16)
    tiny(folder, generation, **changes, **how)
    return folder


def judged(folder: Path, thoroughly: bool) -> Gate:
    """The gate's result, which has to be consistent with itself and fit into JSON."""
    result = gate(folder)
    reasons = [check for check in result.checks if check.refusals or check.withholds]
    assert (result.verdict == Verdict.PASS) == (not reasons)
    if thoroughly:
        json.dumps(result.as_json(), allow_nan=False)
        assert all(refusal.code and refusal.where and refusal.sentence for refusal in result.refusals)
    return result


def parts(generation: Literal[1, 2]) -> Iterator[tuple[str, int, int | None]]:
    """File, how many mutants, how far into the file they reach."""
    yield "config.json", MUTANTS // 5, None
    yield "model.q4nx", MUTANTS // 5, 2500
    yield "model.q4nx", MUTANTS // 20, None
    yield "MANIFEST.sha256", MUTANTS // 20, None


@pytest.mark.slow
@pytest.mark.parametrize("generation", [1, 2])
def test_every_mutant_of_a_package_ends_in_a_verdict(generation: Literal[1, 2], tmp_path: Path) -> None:
    folder = smallest(tmp_path / "package", generation)
    manifest = (folder / "MANIFEST.sha256").read_bytes()
    assert gate(folder).verdict == Verdict.PASS
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    seen: dict[str, int] = {}
    total = 0
    for seed, (name, count, reach) in enumerate(parts(generation)):
        path = folder / name
        content = path.read_bytes()
        if name != "MANIFEST.sha256":  # so that something other than the digest has to tell
            (folder / "MANIFEST.sha256").unlink()
        for number, mutant in enumerate(mutate(content, count, reach or len(content), seed)):
            path.write_bytes(mutant)
            result = judged(folder, number % 16 == 0)
            total += 1
            for check in result.checks:
                if check.outcome == Outcome.REFUSED:
                    seen[check.id] = seen.get(check.id, 0) + 1
        path.write_bytes(content)
        (folder / "MANIFEST.sha256").write_bytes(manifest)
    assert total == MUTANTS // 2
    assert len(seen) > 20, seen
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MEMORY
    assert gate(folder).verdict == Verdict.PASS


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return smallest(tmp_path_factory.mktemp("fuzz") / "package", 1, manifest=False)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_under_any_key_of_the_config_ends_in_a_verdict(package: Path, data: st.DataObject) -> None:
    path = package / "config.json"
    original = path.read_text()
    content = json.loads(original)
    section = data.draw(st.sampled_from([content, content["dflash_config"]]))
    section[data.draw(st.sampled_from(sorted(section)))] = data.draw(VALUES)
    try:
        path.write_text(json.dumps(content))
        judged(package, True)
    finally:
        path.write_text(original)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_in_any_entry_of_the_header_ends_in_a_verdict(package: Path, data: st.DataObject) -> None:
    path = package / "model.q4nx"
    original = path.read_bytes()
    length = int.from_bytes(original[:8], "little")
    header = json.loads(original[8 : 8 + length])
    entry = header[data.draw(st.sampled_from(sorted(header)))]
    entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(VALUES)
    text = json.dumps(header).encode()
    try:
        path.write_bytes(len(text).to_bytes(8, "little") + text + original[8 + length :])
        judged(package, True)
    finally:
        path.write_bytes(original)
