import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import docker
import pytest

from draftmill.outcome import BadConfiguration, InputOutput, Unavailable
from flows.images import Image
from flows.runners import docker_container, docker_engine
from flows.runners.docker import UID, DockerRunner
from flows.runners.docker_network import loopback_of
from flows.runners.runner import Limits
from jobs.contract import Result
from tests.support.engine import PROBE, probe_image
from tests.support.waiting import until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[2]
SMALL = Limits(memory_bytes=128 << 20, pids=64, timeout_s=300, scratch_bytes=8 << 20)
NO_CAPABILITY = "0000000000000000"


@pytest.fixture(scope="module")
def engine() -> docker.DockerClient:
    return probe_image()


@pytest.fixture
def runner(engine: docker.DockerClient, request: pytest.FixtureRequest) -> DockerRunner:
    return DockerRunner(run=request.node.name, images=lambda job, parameters: PROBE)


Probe = Callable[..., Result]


@pytest.fixture
def probe(runner: DockerRunner, tmp_path: Path) -> Probe:
    def run(do: str, *, limits: Limits = SMALL, **more: Any) -> Result:
        folder = tmp_path / "job"
        folder.mkdir()
        given: dict[str, Any] = {"inputs": {}, "secrets": {}, "events": lambda event: None} | more
        parameters = {"do": do} | given.pop("parameters", {})
        return runner.run("probe", folder, parameters=parameters, limits=limits, **given)

    return run


@pytest.fixture(autouse=True)
def leaves_no_container(engine: docker.DockerClient, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    left = engine.containers.list(
        all=True, filters={"label": f"draftmill.run={request.node.name}"}, ignore_removed=True
    )
    for container in left:
        container.remove(force=True)
    assert left == []


def _model(folder: Path) -> Path:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return model


def test_a_job_can_reach_its_inputs_and_its_folder_and_nothing_else(probe: Probe, tmp_path: Path) -> None:
    result = probe("report", inputs={"model": _model(tmp_path)})
    facts = result.facts
    assert result.outcome == "ok"
    uid = UID if os.geteuid() == 0 else os.geteuid()
    assert facts["uid"] == uid != 0
    assert {facts["status"][f"Cap{which}"] for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {NO_CAPABILITY}
    assert facts["status"]["NoNewPrivs"] == "1"
    assert facts["status"]["Seccomp"] == "2"
    assert facts["interfaces"] == ["lo"]
    assert facts["inputs"] == {"model": ["config.json"]}
    assert facts["writes"] == {
        "/new": "EROFS",
        "/opt/draftmill/new": "EROFS",
        "/in/model/new": "EROFS",
        "/tmp/new": "written",
        "/job/new": "written",
    }
    assert not {"kvm", "fuse", "dri", "accel"} & set(facts["devices"])
    ours = set(facts["environment"]) - {"PATH", "HOSTNAME", "LC_CTYPE", "PYTHONPATH"}
    assert ours == {
        "HOME",
        "TMPDIR",
        "HF_HUB_DISABLE_TELEMETRY",
        "DO_NOT_TRACK",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "NUMBA_CACHE_DIR",
        "PWD",
    }


def test_outputs_come_back_to_their_owner_with_the_digest_the_job_stated(probe: Probe, tmp_path: Path) -> None:
    result = probe("report")
    product = tmp_path / "job" / "out" / "product"
    assert [(o.path, o.sha256) for o in result.outputs] == [("product", hashlib.sha256(b"made inside").hexdigest())]
    assert product.read_text() == "made inside"
    assert {path.stat().st_uid for path in (tmp_path / "job").rglob("*")} == {os.geteuid()}


def test_a_refusal_comes_back_whole(probe: Probe) -> None:
    result = probe("refuse")
    assert (result.outcome, result.exit_code, result.error_code) == ("refused", 65, "probe.bad")
    [refusal] = result.refusals
    assert (refusal.where, refusal.measured, refusal.expected) == ("config.json", 3, 4)


def test_memory_within_the_limit_is_given(probe: Probe) -> None:
    result = probe("allocate", parameters={"where": "self", "bytes": 30 << 20})
    assert result.facts == {"length": 30 << 20}


def test_a_job_over_its_memory_is_told_as_out_of_memory(probe: Probe) -> None:
    result = probe("allocate", parameters={"where": "self", "bytes": 300 << 20})
    assert (result.outcome, result.error_code) == ("failed", "oom")
    assert "128 MiB" in (result.error or "")


def test_a_job_whose_child_alone_ran_out_of_memory_fails_although_it_ended_well(probe: Probe, tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    result = probe("allocate", parameters={"where": "child"}, events=events.append)
    assert json.loads((tmp_path / "job" / "result.json").read_text())["outcome"] == "ok"
    assert {"event": "log", "message": "child ended with -9"} in events
    assert (result.outcome, result.error_code) == ("failed", "oom")


def test_processes_over_the_limit_are_not_made(probe: Probe) -> None:
    result = probe("fork", limits=Limits(memory_bytes=128 << 20, pids=20, timeout_s=300))
    assert result.facts["stopped_by"] == "EAGAIN"
    assert 5 < result.facts["forked"] < 20


def test_a_job_past_its_deadline_is_ended_and_told_as_a_timeout(probe: Probe) -> None:
    result = probe("sleep", limits=Limits(memory_bytes=128 << 20, timeout_s=1.5))
    assert (result.outcome, result.error_code, result.exit_code) == ("failed", "timeout", 75)
    assert "1.5 s" in (result.error or "")


def test_a_job_that_leaves_no_result_died(probe: Probe) -> None:
    result = probe("vanish")
    assert (result.outcome, result.error_code) == ("failed", "died")
    assert "exit code 3" in (result.error or "")


def test_a_result_that_contradicts_the_exit_code_is_not_believed(probe: Probe) -> None:
    result = probe("lie")
    assert (result.outcome, result.error_code) == ("failed", "died")


def test_a_link_among_the_outputs_is_not_accepted(probe: Probe) -> None:
    result = probe("link")
    assert (result.outcome, result.error_code) == ("failed", "irregular_output")
    assert "out/shadow" in (result.error or "")


def test_what_a_job_prints_arrives_as_events_and_long_lines_are_cut(probe: Probe) -> None:
    events: list[dict[str, Any]] = []
    assert probe("print", events=events.append).outcome == "ok"
    assert {"event": "log", "message": "structured"} in events
    lines = [event["line"] for event in events if event["event"] == "stderr"]
    assert {"not an event", '{"no": "event"}', "on the other stream", "no end of line"} <= set(lines)
    assert sum(line.count("y") for line in lines) == 200_000
    assert max(map(len, lines)) <= 1 << 16


def test_a_secret_is_a_file_inside_and_nowhere_else(
    probe: Probe, engine: docker.DockerClient, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    canary = "hf_canary0123456789"
    held = tmp_path / "token"
    held.write_text(canary)
    held.chmod(0o600)
    seen: list[str] = []

    def look(event: dict[str, Any]) -> None:
        seen.append(json.dumps(event))
        for container in engine.containers.list(
            filters={"label": f"draftmill.run={request.node.name}"}, ignore_removed=True
        ):
            seen.append(json.dumps(container.attrs))
            seen.append(container.logs().decode())
        if event.get("message") == "holds the secret":
            (tmp_path / "job" / "looked").touch()

    result = probe("secret", secrets={"hf_token": held}, events=look)
    assert result.facts["sha256"] == hashlib.sha256(canary.encode()).hexdigest()
    assert result.facts["mode"] == oct(0o100400)
    assert any('"Running": true' in text for text in seen), "nobody looked while it ran"
    seen.append(json.dumps(engine.images.get(PROBE.tag).history()))
    seen += [path.read_text() for path in (tmp_path / "job").rglob("*") if path.is_file()]
    seen.append(result.model_dump_json())
    assert not [text for text in seen if canary in text]


@pytest.fixture
def hub() -> Iterator[tuple[str, bytes]]:
    body = os.urandom(1 << 20) * 8

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", body
        server.shutdown()


def _fetch(probe: Probe, endpoint: str, other: str, *, network: bool) -> Result:
    limits = Limits(memory_bytes=128 << 20, timeout_s=300, network=network)
    return probe("fetch", parameters={"endpoint": endpoint, "other": other}, limits=limits)


def test_a_download_reaches_a_hub_on_this_hosts_loopback_and_no_other_port(
    probe: Probe, hub: tuple[str, bytes]
) -> None:
    endpoint, body = hub
    with socket.create_server(("127.0.0.1", 0)) as other:
        result = _fetch(probe, endpoint, f"http://127.0.0.1:{other.getsockname()[1]}", network=True)
    assert result.facts["sha256"] == hashlib.sha256(body).hexdigest()
    assert result.facts["other"] == "ConnectionRefusedError"
    assert result.facts["interfaces"] == ["lo"]


def test_without_leave_to_use_the_network_not_even_that_hub_is_reached(probe: Probe, hub: tuple[str, bytes]) -> None:
    result = _fetch(probe, hub[0], hub[0], network=False)
    assert result.facts["sha256"] == "ConnectionRefusedError"


def test_a_job_that_reads_a_mirror_folder_gets_no_network(probe: Probe) -> None:
    result = probe("report", limits=Limits(memory_bytes=128 << 20, timeout_s=300, network=True))
    assert result.facts["interfaces"] == ["lo"]


def test_a_hub_elsewhere_gets_the_bridge(probe: Probe) -> None:
    # Nothing is asked over it: the name does not resolve anywhere (RFC 6761).
    result = _fetch(probe, "http://hub.invalid", "http://hub.invalid", network=True)
    assert result.facts["interfaces"] == ["eth0", "lo"]
    assert result.facts["sha256"] == "gaierror"


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("http://127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("http://localhost:8080/x", ("127.0.0.1", 8080)),
        ("https://127.9.9.9", ("127.9.9.9", 443)),
        ("http://127.0.0.1", ("127.0.0.1", 80)),
        ("https://huggingface.co", None),
        ("http://192.0.2.1:8080", None),
        ("", None),
    ],
)
def test_loopback_is_told_from_elsewhere(endpoint: str, place: tuple[str, int] | None) -> None:
    assert loopback_of(endpoint) == place


def test_a_hub_on_ipv6_loopback_is_said_to_be_out_of_reach() -> None:
    with pytest.raises(BadConfiguration, match=r"serve it on 127\.0\.0\.1"):
        loopback_of("http://[::1]:8080")


def test_a_container_ends_after_its_runners_sigkill_and_the_next_runner_removes_it(
    engine: docker.DockerClient, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    script = f"""
from pathlib import Path
from flows.runners.docker import DockerRunner
from flows.runners.runner import Limits
from tests.support.engine import PROBE
runner = DockerRunner(run={name!r}, images=lambda job, parameters: PROBE)
runner.run("probe", Path({str(tmp_path)!r}), inputs={{}}, parameters={{"do": "sleep"}}, secrets={{}},
           limits=Limits(memory_bytes=128 << 20, timeout_s=600), events=lambda event: print(event, flush=True))
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT, text=True)
    assert parent.stdout and "asleep" in parent.stdout.readline()

    def running() -> int:
        return len(engine.containers.list(filters={"label": f"draftmill.run={name}"}, ignore_removed=True))

    assert running() == 1
    parent.send_signal(signal.SIGKILL)
    until(lambda: running() == 0, "the container ends")
    parent.wait()
    # Whichever runner comes next sweeps: another test's may have been quicker.
    DockerRunner()
    assert engine.containers.list(all=True, filters={"label": f"draftmill.run={name}"}, ignore_removed=True) == []


def test_an_exception_in_the_caller_leaves_no_container(probe: Probe) -> None:
    def cancel(event: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        probe("sleep", events=cancel)


def test_a_container_that_cannot_start_is_removed_and_the_reason_given(probe: Probe, tmp_path: Path) -> None:
    # A mount below a file cannot be made, which the engine finds out only at the start.
    with pytest.raises(Unavailable, match="did not run probe"):
        probe("report", inputs={"../etc/passwd/x": _model(tmp_path)})


def test_an_input_that_links_out_of_its_folder_is_named_before_anything_starts(probe: Probe, tmp_path: Path) -> None:
    model = _model(tmp_path)
    (model / "inside.json").symlink_to("config.json")
    (tmp_path / "blob").write_text("{}")
    (model / "outside.json").symlink_to("../blob")
    with pytest.raises(InputOutput, match=r"outside\.json is a link"):
        probe("report", inputs={"model": model})


def test_a_link_within_an_input_is_followed(probe: Probe, tmp_path: Path) -> None:
    model = _model(tmp_path)
    (model / "inside.json").symlink_to("config.json")
    assert probe("report", inputs={"model": model}).facts["inputs"] == {"model": ["config.json", "inside.json"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs as another user")
def test_an_input_that_the_job_could_not_read_is_named_before_anything_starts(probe: Probe, tmp_path: Path) -> None:
    model = _model(tmp_path)
    (model / "config.json").chmod(0o600)
    with pytest.raises(InputOutput, match=r"config\.json cannot be read by other users"):
        probe("report", inputs={"model": model})


def test_a_missing_image_names_the_command_that_builds_it(engine: docker.DockerClient, tmp_path: Path) -> None:
    runner = DockerRunner(images=lambda job, parameters: Image("absent", public_base="", debian=()))
    with pytest.raises(BadConfiguration, match="draftmill images build absent"):
        runner.code_digest("probe", {})


def test_the_code_digest_is_the_image_id(runner: DockerRunner, engine: docker.DockerClient) -> None:
    assert runner.code_digest("probe", {}) == engine.images.get(PROBE.tag).id


def test_without_an_engine_the_reason_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    with pytest.raises(Unavailable, match="--runner process"):
        DockerRunner()


@pytest.mark.parametrize(
    ("owner", "lives_s", "goes"),
    [
        ("living", 3600, False),
        ("living", -1, True),
        ("dead", 3600, True),
        ("number taken by another", 3600, True),
        ("elsewhere", 3600, False),
        ("elsewhere", -1, True),
        ("an earlier life of this worker", 3600, True),
    ],
)
def test_the_sweep_takes_what_is_past_its_deadline_or_without_an_owner(
    engine: docker.DockerClient, owner: str, lives_s: float, goes: bool
) -> None:
    labels = docker_engine.labels_of(run="sweep", job="probe", device="", lives_s=lives_s)
    here, pid, started = labels["draftmill.owner"].rsplit("/", 2)
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    labels["draftmill.owner"] = {
        "living": f"{here}/{pid}/{started}",
        "dead": f"{here}/{gone.pid}/12345",
        "number taken by another": f"{here}/{pid}/{int(started) - 1}",
    }.get(owner, f"other-boot/1/{gone.pid}/12345")
    labels["draftmill.worker"] = "sweeper" if "worker" in owner else "another"
    container = engine.containers.create(PROBE.tag, ["true"], labels=labels)
    try:
        assert (container.name in docker_engine.sweep(engine, "sweeper")) == goes
    finally:
        docker_engine.remove(container)


def test_a_runner_that_is_stopped_removes_its_containers_and_starts_none(
    engine: docker.DockerClient, runner: DockerRunner, probe: Probe, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    def stop_when_asleep(event: dict[str, Any]) -> None:
        threading.Thread(target=runner.stop).start()

    result = probe("sleep", events=stop_when_asleep)
    assert (result.outcome, result.error_code) == ("failed", "stopped")
    label = f"draftmill.run={request.node.name}"
    # The runner and the one who stops it both remove the container; the engine may still be about it for the other.
    until(
        lambda: not engine.containers.list(all=True, filters={"label": label}, ignore_removed=True),
        "the container is removed",
    )
    (tmp_path / "job" / "request.json").unlink()
    (tmp_path / "job").rename(tmp_path / "stopped")
    assert probe("report").error_code == "stopped"
    assert list((tmp_path / "job").iterdir()) == []


def test_a_container_that_was_removed_by_a_stop_is_no_fault_of_the_engine(runner: DockerRunner, probe: Probe) -> None:
    def stop_now(event: dict[str, Any]) -> None:
        runner.stop()

    # It is gone before anybody asks the engine how it ended.
    result = probe("sleep", events=stop_now)
    assert (result.outcome, result.error_code) == ("failed", "stopped")
    assert result.error == "The run was stopped before job probe had ended."


def test_a_container_that_is_made_while_the_runner_stops_does_not_start(
    runner: DockerRunner, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create_late(api: docker.APIClient, plan: docker_container.Plan) -> str:
        runner.stop()
        return docker_container.create(api, plan)

    monkeypatch.setattr("flows.runners.docker.create", create_late)
    events: list[dict[str, Any]] = []
    assert probe("print", events=events.append).error_code == "stopped"
    assert events == []
