"""Devices in containers: KVM and FUSE stand in for GPUs and NPUs, under other names and groups."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import docker
import pytest

from draftmill.kernel_lock import held_by, is_free
from draftmill.measurement.device.lock import LOCKS, lock_path
from draftmill.measurement.device.profiles import CPU, Device
from draftmill.outcome import Refused, Unavailable
from flows.images import MEASURE
from flows.runners.docker import UID, DockerRunner
from flows.runners.docker_devices import NOTHING, passthrough_for
from flows.runners.runner import Limits
from jobs.contract import Result
from tests.support.engine import PROBE, measure_image, probe_image
from tests.support.inputs import ROOT
from tests.support.waiting import until

GROUP = 4242
SMALL = Limits(memory_bytes=512 << 20, pids=64, timeout_s=600, scratch_bytes=8 << 20)

ENGINE = """#!/bin/sh
case $1 in
--help) echo '-m, --model FNAME  the model
-c, --ctx-size N  context
-t, --threads N  threads
-np, --parallel N  slots
-ngl, --gpu-layers N  layers
-dev, --device NAME  device
--host HOST  host
--port PORT  port
--metrics  counters
--version  version
--list-devices  devices' ;;
--version) echo "version: 1 (stand-in)" ;;
--list-devices)
    echo "Available devices:"
    if [ "$LD_LIBRARY_PATH" = "$(dirname "$0")/lib" ] && [ -r "$LD_LIBRARY_PATH/libgpu.so" ]
    then echo "  HRX0: Stand-in ($HSA_WORD) (1024 MiB, 1000 MiB free)"
    else echo "  (none)"
    fi ;;
esac
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder of the host that the job's user can enter; pytest's own it cannot."""
    folder = Path(mkdtemp(prefix="draftmill-devices-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    folder.rmdir()


@pytest.fixture(autouse=True)
def locks(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = shared / "locks"
    monkeypatch.setenv(LOCKS, str(folder))
    return folder


@pytest.fixture
def engine_folder(shared: Path) -> Path:
    """A host's own engine: a binary that needs its library path to see the device."""
    folder = shared / "engine"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "libgpu.so").write_text("")
    program = folder / "llama-server"
    program.write_text(ENGINE)
    program.chmod(0o755)
    return folder


def stand_in(folder: Path, real: str = "/dev/kvm", *, mode: int = 0o660, group: int = GROUP) -> Path:
    """A node of our own with the number of a real one, so that the host's stays as it is."""
    if os.geteuid() != 0:
        pytest.skip("only root can make device nodes")
    if not Path(real).exists():
        pytest.skip(f"{real} is not there")
    node = folder / f"{Path(real).name}{mode:o}"
    os.mknod(node, stat.S_IFCHR | mode, os.stat(real).st_rdev)
    node.chmod(mode)
    os.chown(node, 0, group)
    return node


def profile(**keys: Any) -> Device:
    return Device.model_validate({"name": "bench", "engine": "xllamacpp", **keys})


def of_engine(folder: Path, **keys: Any) -> Device:
    engine = {
        "llama_server": folder / "llama-server",
        "library_path": [folder / "lib"],
        "environment": {"HSA_WORD": "spoken"},
        "mounts": [folder],
    }
    return profile(engine=engine, device="HRX0", gpu_layers=99, **keys)


def test_only_jobs_that_work_on_a_device_are_given_any_of_it(engine_folder: Path) -> None:
    device = of_engine(engine_folder)
    for job in ("download", "convert", "quantize", "check", "gate", "intake"):
        assert passthrough_for(device, job) == NOTHING
    for job in ("preflight", "measure_speed", "measure_acceptance"):
        assert passthrough_for(device, job).device == "bench"
        assert passthrough_for(None, job) == NOTHING


def test_everything_that_the_host_lacks_is_named_at_once(shared: Path) -> None:
    device = profile(
        engine={"llama_server": "llama-server", "mounts": ["/opt/absent", "/opt"]},
        nodes=[{"path": "/dev/absent0"}, {"path": "/dev/absent1"}, {"path": "/dev/optional", "required": False}],
    )
    with pytest.raises(Refused) as caught:
        passthrough_for(device, "preflight")
    assert [(refusal.code, refusal.where) for refusal in caught.value.refusals] == [
        ("device.host_lacks", "/dev/absent0"),
        ("device.host_lacks", "/dev/absent1"),
        ("device.host_lacks", "/opt/absent"),
        ("device.mount", "/opt"),
    ]


@pytest.mark.parametrize(
    ("mount", "covers"),
    [
        ("/", True),
        ("/usr", True),
        ("/usr/lib", True),
        ("/etc", True),
        ("/proc/1", True),
        ("/dev/shm", True),
        ("/opt/draftmill/venv", True),
        ("/var/tmp", False),
        ("/usr/share", False),
    ],
)
def test_a_mount_over_what_the_container_needs_is_refused(mount: str, covers: bool) -> None:
    device = profile(engine={"llama_server": "llama-server", "mounts": [mount]})
    try:
        passthrough_for(device, "preflight")
    except Refused as refused:
        assert "device.mount" in {refusal.code for refusal in refused.refusals}
        assert covers
    else:
        assert not covers


def test_groups_are_the_nodes_own_numbers_unless_stated_and_a_node_that_may_be_absent_is_left_out(
    shared: Path,
) -> None:
    own, stated = stand_in(shared), stand_in(shared, mode=0o600)
    nodes = [{"path": own}, {"path": stated, "group": 77}, {"path": "/dev/optional", "required": False}]
    given = passthrough_for(profile(nodes=nodes, memlock="unlimited"), "preflight")
    assert given.groups == [77, GROUP]
    assert [(node["PathOnHost"], node["PathInContainer"]) for node in given.nodes] == [
        (str(own), str(own)),
        (str(stated), str(stated)),
    ]
    assert {node["CgroupPermissions"] for node in given.nodes} == {"rw"}
    assert [(limit.name, limit.soft, limit.hard) for limit in given.ulimits] == [("memlock", -1, -1)]


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return measure_image()


@pytest.fixture(scope="module")
def probe() -> None:
    probe_image()


Preflight = Callable[..., Result]
Created = list[dict[str, Any]]


@pytest.fixture
def run(client: docker.DockerClient, tmp_path: Path) -> Preflight:
    def of(device: Device, **more: Any) -> Result:
        folder = tmp_path / f"job{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        given: dict[str, Any] = {"events": lambda event: None, "limits": SMALL} | more
        parameters = {"device": device.model_dump(mode="json")}
        runner = DockerRunner(run="devices", device=device)
        return runner.run("preflight", folder, inputs={}, parameters=parameters, secrets={}, **given)

    return of


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> Created:
    """What the engine was asked for, container by container."""
    asked: Created = []
    create = docker.APIClient.create_container

    def look(api: docker.APIClient, *arguments: Any, **options: Any) -> Any:
        asked.append(options)
        return create(api, *arguments, **options)

    monkeypatch.setattr(docker.APIClient, "create_container", look)
    return asked


@pytest.mark.docker
@pytest.mark.parametrize("real", ["/dev/kvm", "/dev/fuse"])
def test_a_job_opens_the_device_through_its_group_and_is_labelled(
    run: Preflight, created: Created, shared: Path, real: str
) -> None:
    node = stand_in(shared, real)
    # The host's modules and counters are seen from inside too.
    module, counter = "kernel", Path("/sys/kernel/mm/ksm/run")
    result = run(profile(nodes=[{"path": node}], modules=[module], memory={"counter": counter}))
    assert (result.outcome, result.refusals) == ("ok", [])
    assert result.facts["preflight"]["facts"]["memory"]["counter"] == int(counter.read_text())
    facts = result.facts["preflight"]["facts"]["nodes"][str(node)]
    number = os.stat(real).st_rdev
    assert facts == {
        "opened": True,
        "number": f"{os.major(number)}:{os.minor(number)}",
        "group": GROUP,
        "mode": "crw-rw----",
    }
    [options] = created
    assert options["labels"]["draftmill.device"] == "bench"
    assert options["host_config"]["GroupAdd"] == [str(GROUP)]


@pytest.mark.docker
def test_a_node_can_be_named_by_a_stable_link_with_colons(run: Preflight, shared: Path) -> None:
    link = shared / "pci-0000:c5:00.0-render"
    link.symlink_to(stand_in(shared))
    facts = run(profile(nodes=[{"path": link}])).facts["preflight"]["facts"]["nodes"]
    assert facts[str(link)]["opened"] is True


@pytest.mark.docker
def test_each_way_a_node_can_be_closed_is_told_with_its_own_advice(run: Preflight, shared: Path) -> None:
    closed, other = stand_in(shared, mode=0o600), stand_in(shared, "/dev/fuse", group=777)
    result = run(profile(nodes=[{"path": closed}, {"path": other, "group": GROUP}]))
    assert result.outcome == "refused"
    assert [(refusal.code, refusal.where) for refusal in result.refusals] == [
        ("device.node_closed", str(closed)),
        ("device.node_closed", str(other)),
    ]
    assert "MODE=0660" in result.refusals[0].sentence
    assert "--group-add 777" in result.refusals[1].sentence
    assert result.refusals[1].measured["error"] == "EACCES"
    assert GROUP in result.refusals[1].measured["groups"]


@pytest.mark.docker
def test_a_hosts_own_engine_runs_inside_with_its_libraries_and_variables_and_cannot_be_changed(
    run: Preflight, engine_folder: Path
) -> None:
    result = run(of_engine(engine_folder))
    assert (result.outcome, result.error) == ("ok", None)
    engine = result.facts["preflight"]["facts"]["engine"]
    assert engine["devices"] == {"HRX0": "Stand-in (spoken) (1024 MiB, 1000 MiB free)"}
    assert engine["program"] == str(engine_folder / "llama-server")
    mounts = {mount["Target"]: mount for mount in passthrough_for(of_engine(engine_folder), "preflight").mounts}
    assert mounts[str(engine_folder)]["ReadOnly"] is True


@pytest.mark.docker
def test_without_its_library_path_the_device_is_not_listed(run: Preflight, engine_folder: Path) -> None:
    device = of_engine(engine_folder)
    assert not isinstance(device.engine, str)
    bare = device.model_copy(update={"engine": device.engine.model_copy(update={"library_path": ()})})
    result = run(bare)
    assert [refusal.code for refusal in result.refusals] == ["device.not_listed"]
    assert result.refusals[0].measured == []


@pytest.mark.docker
def test_the_memlock_limit_of_the_profile_holds_inside(run: Preflight) -> None:
    result = run(profile(memlock=1 << 20))
    assert result.facts["preflight"]["facts"]["memlock"] == {"soft": 1 << 20, "hard": 1 << 20}


@pytest.mark.docker
def test_a_job_that_needs_no_device_gets_none(probe: None, created: Created, shared: Path, tmp_path: Path) -> None:
    device = profile(nodes=[{"path": stand_in(shared)}], memlock=1 << 20)
    runner = DockerRunner(images=lambda job, parameters: PROBE, device=device)
    given: dict[str, Any] = {"inputs": {}, "secrets": {}, "events": lambda event: None, "limits": SMALL}
    assert runner.run("probe", tmp_path, parameters={"do": "report"}, **given).outcome == "ok"
    [options] = created
    assert options["labels"]["draftmill.device"] == ""
    assert not any(options["host_config"].get(key) for key in ("Devices", "GroupAdd", "Ulimits"))
    assert [mount["Target"] for mount in options["host_config"]["Mounts"]] == ["/job"]


@pytest.mark.docker
def test_a_limit_that_the_engine_cannot_give_is_told(run: Preflight) -> None:
    try:
        result = run(profile(memlock="unlimited"))
    except Unavailable as error:
        assert "rlimit" in str(error)
    else:
        assert result.facts["preflight"]["facts"]["memlock"] == {"soft": -1, "hard": -1}


RUN = """
import sys
from pathlib import Path
import flows.runners.docker_devices as devices
from draftmill.measurement.device.profiles import CPU
from flows.runners.docker import DockerRunner
from flows.runners.runner import Limits
from tests.support.engine import PROBE
devices.MEASURING = frozenset({"probe"})
runner = DockerRunner(images=lambda job, parameters: PROBE, device=CPU)
runner.run("probe", Path(sys.argv[1]), inputs={}, parameters={"do": "hold"}, secrets={},
           limits=Limits(memory_bytes=512 << 20, timeout_s=600), events=lambda event: print(event, flush=True))
"""


@pytest.mark.docker
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_device_is_free_after_the_death_of_the_run_whose_container_held_it(
    probe: None, tmp_path: Path, number: signal.Signals
) -> None:
    path = lock_path(CPU)
    with subprocess.Popen([sys.executable, "-c", RUN, tmp_path], stdout=subprocess.PIPE, cwd=ROOT, text=True) as run:
        assert run.stdout and "holds the device" in run.stdout.readline()
        assert held_by(path).startswith("run inside")
        run.send_signal(number)
        until(lambda: is_free(path), "the device is free")


@pytest.mark.docker
def test_a_container_that_holds_the_lock_keeps_this_host_out_until_it_is_killed(
    client: docker.DockerClient, locks: Path
) -> None:
    device = CPU
    given = passthrough_for(device, "measure_speed")
    script = (
        "import time; from draftmill.measurement.device.profiles import CPU; "
        "from draftmill.measurement.device.lock import device_lock\n"
        "with device_lock(CPU, run='inside'): print('held', flush=True); time.sleep(600)"
    )
    options: dict[str, Any] = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "user": str(UID)}
    container = client.containers.run(
        MEASURE.tag,
        ["python", "-c", script],
        mounts=given.mounts,
        environment=given.environment,
        tmpfs={"/tmp": ""},
        detach=True,
        **options,
    )
    try:
        assert next(iter(container.logs(stream=True))) == b"held\n"
        path = lock_path(device)
        assert path.parent == locks
        assert held_by(path).startswith(f"run inside (process 1 on {container.id[:12]}")
        container.kill()
        until(lambda: is_free(path), "the device is free")
    finally:
        container.remove(force=True)
