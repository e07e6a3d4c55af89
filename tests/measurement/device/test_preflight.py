"""The preflight: real nodes opened, real engines asked, and one thing missing at a time."""

import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner

from draftmill.cli.devices import app
from draftmill.measurement.device.lock import LOCKS, device_lock
from draftmill.measurement.device.preflight import preflight, read_listing
from draftmill.measurement.device.profiles import CPU, Device
from draftmill.outcome import Refused
from tests.support.inputs import ROOT
from tests.support.stock import llama_quantize


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCKS, str(tmp_path / "locks"))


def profile(**keys: Any) -> Device:
    return Device.model_validate({"name": "bench", "engine": "xllamacpp", **keys})


def codes(device: Device) -> list[tuple[str, str]]:
    return [(refusal.code, refusal.where) for refusal in preflight(device).refusals]


def in_place_of(tmp_path: Path, real: str, mode: int = 0o660) -> Path:
    """A node with the number of a real one."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    if not Path(real).exists():
        pytest.skip(f"{real} is not there")
    node = tmp_path / Path(real).name
    os.mknod(node, stat.S_IFCHR | mode, os.stat(real).st_rdev)
    node.chmod(mode)
    return node


def test_the_processor_is_ready_and_its_engine_named() -> None:
    found = preflight(CPU)
    assert found.ready
    found.check()
    assert found.facts["engine"]["version"] == "xllamacpp 2026.10.11549"
    assert len(found.facts["engine"]["sha256"]) == 64
    assert found.facts["memory"]["host_available"] > 1 << 20


@pytest.mark.parametrize("real", ["/dev/kvm", "/dev/fuse"])
def test_a_node_is_opened_for_real(real: str, tmp_path: Path) -> None:
    node = in_place_of(tmp_path, real)
    found = preflight(profile(nodes=[{"path": node}]))
    assert found.ready
    number = os.stat(real).st_rdev
    facts = found.facts["nodes"][str(node)]
    assert (facts["opened"], facts["number"]) == (True, f"{os.major(number)}:{os.minor(number)}")


def test_a_node_whose_driver_does_not_answer_is_not_ready(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    node = tmp_path / "accel0"
    os.mknod(node, stat.S_IFCHR | 0o660, os.makedev(261, 63))  # the accel subsystem's number, no such device
    found = preflight(profile(nodes=[{"path": node}]))
    [refusal] = found.refusals
    assert (refusal.code, refusal.where) == ("device.node_broken", str(node))
    assert refusal.measured["error"] in ("ENXIO", "ENODEV")
    assert found.facts["nodes"][str(node)]["opened"] is False


def test_a_node_that_may_be_absent_is_remarked_on(tmp_path: Path) -> None:
    found = preflight(profile(nodes=[{"path": tmp_path / "absent", "required": False}]))
    assert found.ready
    assert "does without" in found.remarks[0]


AS_ANOTHER_USER = """
import json, os, sys
from draftmill.measurement.device import preflight as module
from draftmill.measurement.device.profiles import Node
os.setgroups([4243]); os.setgid(4243); os.setuid(65532)
found = module.Preflight("bench")
module._open(Node(path=sys.argv[1]), found)
print(json.dumps(found.as_json()))
"""


def test_a_node_of_another_group_is_told_with_its_number() -> None:
    with TemporaryDirectory() as folder:  # pytest's own is closed to other users
        Path(folder).chmod(0o755)
        node = in_place_of(Path(folder), "/dev/fuse")
        os.chown(node, 0, 4242)
        command = [sys.executable, "-c", AS_ANOTHER_USER, node]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    [refusal] = json.loads(done.stdout)["refusals"]
    assert refusal["code"] == "device.node_closed"
    assert "group 4242" in refusal["sentence"] and "--group-add 4242" in refusal["sentence"]
    assert refusal["measured"] == {"error": "EACCES", "groups": [4243]}


@pytest.mark.parametrize(
    ("keys", "code", "where"),
    [
        ({"nodes": [{"path": "/dev/absent"}]}, "device.node_missing", "/dev/absent"),
        ({"nodes": [{"path": "/dev"}]}, "device.node_kind", "/dev"),
        ({"nodes": [{"path": "/etc/passwd"}]}, "device.node_kind", "/etc/passwd"),
        ({"modules": ["draftmill_absent"]}, "device.module", "/sys/module/draftmill_absent"),
        ({"needs": {"XRT": "/opt/absent.so"}}, "device.need_missing", "/opt/absent.so"),
        ({"memory": {"vram": "/sys/absent"}}, "device.counter", "/sys/absent"),
        ({"memory": {"vram": "/proc/version"}}, "device.counter", "/proc/version"),
        ({"engine": {"llama_server": "/opt/absent"}}, "device.engine_missing", "/opt/absent"),
        ({"engine": {"llama_server": "/bin/true"}}, "device.engine_broken", os.path.realpath("/bin/true")),
        ({"extra": ["--no-such-flag"]}, "flags.unknown", "--no-such-flag"),
        ({"extra": ["--model", "x"]}, "flags.owned", "--model"),
    ],
)
def test_each_thing_that_is_missing_is_told_by_its_code_and_place(keys: dict[str, Any], code: str, where: str) -> None:
    assert codes(profile(**keys)) == [(code, where)]


def test_all_that_is_missing_is_told_at_once() -> None:
    device = profile(
        engine={"llama_server": "/opt/absent"},
        nodes=[{"path": "/dev/absent0"}, {"path": "/dev/absent1"}],
        modules=["draftmill_absent"],
        needs={"one": "/opt/one", "two": "/opt/two"},
        memory={"vram": "/sys/absent0", "gtt": "/sys/absent1"},
    )
    found = preflight(device)
    assert [refusal.where for refusal in found.refusals] == [
        "/dev/absent0",
        "/dev/absent1",
        "/sys/module/draftmill_absent",
        "/opt/one",
        "/opt/two",
        "/sys/absent0",
        "/sys/absent1",
        "/opt/absent",
    ]
    with pytest.raises(Refused) as caught:
        found.check()
    assert list(caught.value.refusals) == found.refusals


def test_what_there_is_of_drivers_and_versions_is_told(tmp_path: Path) -> None:
    module = next(path for path in sorted(Path("/sys/module").iterdir()) if (path / "version").exists())
    device = profile(
        modules=[module.name],
        versions={"kernel": "/proc/version", "firmware": "/sys/absent"},
        needs={"shell": "/bin/sh"},
    )
    found = preflight(device)
    assert found.ready
    assert found.facts["modules"] == {module.name: (module / "version").read_text().strip()}
    assert found.facts["versions"] == {"kernel": Path("/proc/version").read_text().strip(), "firmware": None}
    assert found.facts["needs"] == {"shell": "/bin/sh"}
    assert found.remarks == ["firmware cannot be read from /sys/absent"]


@pytest.mark.parametrize(
    ("soft", "wanted", "enough"),
    [(1 << 20, 1 << 20, True), (1 << 20, (1 << 20) + 1, False), (1 << 20, "unlimited", False)],
)
def test_the_memory_that_may_be_locked_is_held_against_what_is_needed(soft: int, wanted: Any, enough: bool) -> None:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (soft, before[1]))
    try:
        found = preflight(profile(memlock=wanted))
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
    assert found.facts["memlock"]["soft"] == soft
    assert [refusal.code for refusal in found.refusals] == ([] if enough else ["device.memlock"])


def test_who_holds_the_device_is_told() -> None:
    with device_lock(CPU, run="night run"):
        assert preflight(CPU).facts["held_by"].startswith("run night run (process")
    assert preflight(CPU).facts["held_by"] is None


def test_a_listing_is_read_as_llama_server_prints_it() -> None:
    text = (
        "log line\nAvailable devices:\n  HRX0: AMD Radeon 8060S (98304 MiB, 98000 MiB free)\n  Vulkan0: A: B (1 MiB)\n"
    )
    assert read_listing(text) == {
        "HRX0": "AMD Radeon 8060S (98304 MiB, 98000 MiB free)",
        "Vulkan0": "A: B (1 MiB)",
    }
    assert read_listing("Available devices:\n  (none)\n") == {}
    assert read_listing("") == {}


@pytest.fixture
def debian() -> dict[str, Any]:
    """Debian's llama-server, started through the loader of the C library that it was built for."""
    *prefix, program = llama_quantize()
    server = Path(program).with_name("llama-server")
    if not server.exists():
        pytest.skip("no llama-server beside llama-quantize")
    return {"llama_server": server, "prefix": prefix}


@pytest.mark.stock
def test_a_real_server_without_a_gpu_is_ready_and_says_its_version(debian: dict[str, Any]) -> None:
    found = preflight(profile(engine=debian))
    assert found.ready
    assert "version" in found.facts["engine"]["version"]
    assert found.facts["engine"]["devices"] == {}


@pytest.mark.stock
def test_a_real_server_that_does_not_see_the_device_is_refused(debian: dict[str, Any]) -> None:
    device = profile(engine=debian, device="HRX0", draft_device="HRX1,HRX0", gpu_layers=99)
    assert codes(device) == [("device.not_listed", "HRX0"), ("device.not_listed", "HRX1")]
    assert codes(profile(engine=debian, device="none")) == []


def test_the_job_states_what_it_found_and_refuses_what_is_missing(tmp_path: Path) -> None:
    for device, outcome in ((CPU, "ok"), (profile(needs={"XRT": "/opt/absent.so"}), "refused")):
        folder = tmp_path / outcome
        folder.mkdir()
        request = {"job": "preflight", "parameters": {"device": device.model_dump(mode="json")}}
        (folder / "request.json").write_text(json.dumps(request))
        subprocess.run([sys.executable, "-m", "jobs.preflight", folder], cwd=ROOT, check=False, capture_output=True)
        result = json.loads((folder / "result.json").read_text())
        assert result["outcome"] == outcome
        assert result["facts"]["preflight"] == json.loads((folder / "out" / "preflight.json").read_text())
        assert result["tools"][0]["name"] == "xllamacpp"
    assert result["refusals"][0]["code"] == "device.need_missing"


def test_the_commands_list_check_and_end_with_their_codes(tmp_path: Path) -> None:
    path = tmp_path / "devices.yaml"
    path.write_text("devices:\n  gpu:\n    engine: {llama_server: /opt/absent}\n    nodes: [{path: /dev/absent}]\n")
    command = CliRunner()
    listed = command.invoke(app, ["list", "--config", str(path)])
    assert listed.exit_code == 0 and "/dev/absent" in listed.output
    rows = json.loads(command.invoke(app, ["list", "--config", str(path), "--json"]).output)
    assert [row["name"] for row in rows] == ["cpu", "gpu"]
    ready = command.invoke(app, ["check", "cpu", "--json"])
    assert (ready.exit_code, json.loads(ready.output)["ready"]) == (0, True)
    missing = command.invoke(app, ["check", "gpu", "--config", str(path), "--json"])
    assert missing.exit_code == 1
    assert [r["code"] for r in json.loads(missing.output)["refusals"]] == [
        "device.node_missing",
        "device.engine_missing",
    ]
    told = command.invoke(app, ["check", "gpu"], env={"DRAFTMILL_DEVICES": str(path)})
    assert told.exit_code == 1 and "device.node_missing" in told.output
