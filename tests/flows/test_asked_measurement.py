"""What an order of a measurement may leave to the worker."""

from pathlib import Path

import pytest

from draftmill.measurement.device.profiles import CPU
from draftmill.outcome import BadConfiguration, Refused
from flows.asked_measurement import whole_request
from flows.measure_pair import measure_pair
from tests.support.inputs import ROOT


def test_the_prompts_the_device_and_the_runs_name_are_the_workers() -> None:
    one, other = whole_request({"what": "speed"}), whole_request({"what": "speed", "n_max": 7})
    lines = [line for path in (ROOT / "config" / "prompts").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(one.prompts) == len([line for line in lines if line.strip()])
    assert (one.device, one.n_max, other.n_max) == (CPU, 4, 7)
    assert one.run != other.run


def test_a_device_that_is_only_named_is_the_one_of_the_workers_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole_request({"what": "speed", "device": "xdna-npu"}).device.nodes[0].path == Path("/dev/accel/accel0")
    file = tmp_path / "devices.yaml"
    file.write_text("devices:\n  bench:\n    engine: xllamacpp\n    description: theirs\n")
    monkeypatch.setenv("DRAFTMILL_DEVICES", str(file))
    assert whole_request({"what": "speed", "device": "bench"}).device.description == "theirs"
    with pytest.raises(Refused) as error:
        whole_request({"what": "speed", "device": "xdna-npu"})
    assert error.value.code == "device.unknown"


def test_what_an_order_names_is_taken_as_it_is() -> None:
    asked = {"name": "mine", "kind": "code", "text": "def f("}
    device = CPU.model_dump(mode="json") | {"name": "other", "lock": "other"}
    given = whole_request({"what": "acceptance", "run": "r1", "prompts": [asked], "device": device})
    assert (given.run, given.device.name, [each.text for each in given.prompts]) == ("r1", "other", ["def f("])


def test_a_member_that_is_wrong_is_named() -> None:
    with pytest.raises(BadConfiguration, match=r"budget: .*; draft: ") as error:
        whole_request({"what": "speed", "budget": 1, "draft": "d.gguf"})
    assert error.value.code == "measure.request"


def test_a_file_that_the_worker_does_not_see_is_named(tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.touch()
    order = {"request": {"what": "speed"}, "target": str(there), "draft": str(tmp_path / "away.gguf")}
    with pytest.raises(BadConfiguration, match=r"the draft .*away\.gguf is not where this runs"):
        measure_pair.fn(order | {"store": str(tmp_path / "store"), "work": str(tmp_path / "work")})
