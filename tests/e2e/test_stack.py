"""docker-compose.yml as an operator starts it: a run by deployment, one that is cancelled, a worker that is killed."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from draftmill.hub.server import serve
from tests.support import pairs
from tests.support.catalogue_hub import (
    CATALOGUE,
    PACKAGE,
    PLAIN,
    write_catalogue,
    write_donor,
    write_package,
    write_plain,
)
from tests.support.engine import jobs_image, measure_image
from tests.support.inputs import ROOT
from tests.support.stack import LOST_AFTER_S, SECRETS, Stack, running_stack, until

pytestmark = pytest.mark.docker

CATALOGUE_RUN = "catalogue_run/catalogue"
TOKEN = "hf_canaryOfTheStack7"
TARGETS = "targets:"
"""The catalogue from here on: without targets a run ends sooner."""
WORKING = {"tokenizer", "convert", "quantize", "check"}
"""Jobs that take seconds."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    jobs_image()
    client = measure_image()
    folder = tmp_path_factory.mktemp("stack")
    hub, config = folder / "hub", folder / "config"
    config.mkdir()
    write_donor(hub)
    write_plain(hub)
    write_package(hub)
    write_catalogue(config, CATALOGUE.partition(TARGETS)[0])
    shutil.copytree(ROOT / "config" / "prompts", config / "prompts")
    host = client.networks.get("bridge").attrs["IPAM"]["Config"][0]["Gateway"]
    with (
        serve(hub, host=host) as server,
        running_stack(folder, client, hub=server.endpoint, config=config, token=TOKEN) as stack,
    ):
        yield stack


def test_the_first_start_makes_what_runs_need(stack: Stack) -> None:
    pool = stack.api.get("/work_pools/cpu").raise_for_status().json()
    assert pool["type"] == "process"
    found = stack.api.post("/deployments/filter", json={}).raise_for_status().json()
    assert {deployment["name"] for deployment in found} == {"catalogue", "convert", "validate", "measure-cpu"}
    [catalogue] = [deployment for deployment in found if deployment["name"] == "catalogue"]
    [schedule] = catalogue["schedules"]
    assert schedule["schedule"] == {"cron": "30 2 29 2 *", "timezone": "Etc/UTC", "day_or": True}
    assert catalogue["global_concurrency_limit"]["limit"] == 1
    [automation] = stack.api.post("/automations/filter", json={}).raise_for_status().json()
    assert automation["trigger"]["posture"] == "Proactive"
    assert automation["trigger"]["within"] == LOST_AFTER_S
    assert automation["actions"][0]["state"] == "CRASHED"

    again = stack.compose("run", "--rm", "--no-deps", "bootstrap").stdout
    assert "the work pool cpu is there" in again
    assert "the automation for lost runs is there" in again


def test_who_does_not_know_the_password_is_turned_away(stack: Stack) -> None:
    import httpx

    assert httpx.post(f"{stack.api_url}/deployments/filter", json={}).status_code == 401
    assert httpx.get(f"{stack.api_url}/health").status_code == 200
    page = httpx.get(stack.api_url.removesuffix("/api"))
    assert page.text.startswith("<!DOCTYPE html>"), "the page itself holds nothing, and asks for the password"


def test_what_runs_is_confined_and_on_loopback_alone(stack: Stack) -> None:
    for container in stack.containers():
        host, name = container.attrs["HostConfig"], container.name
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert host["SecurityOpt"] == ["no-new-privileges:true"], name
        assert not host["Privileged"], name
        published = [place for places in (host["PortBindings"] or {}).values() for place in places]
        assert {place["HostIp"] for place in published} <= {"127.0.0.1"}, name
    server = environment_of(stack, "server")
    assert server["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"
    assert server["DO_NOT_TRACK"] == environment_of(stack, "worker")["DO_NOT_TRACK"] == "1"
    assert server["PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT"] == "false"
    lasting = stack.compose("exec", "-T", "server", "prefect", "config", "view").stdout
    assert "lease_storage.filesystem" in lasting


def test_a_run_by_deployment_publishes_what_s3_then_holds(stack: Stack) -> None:
    ended = stack.run_deployment(CATALOGUE_RUN, {"only": "fast/*"})
    assert ended["type"] == "COMPLETED", ended
    assert ended["message"] == "1 drafters, 0 unchanged, 1 ran: 1 pass"
    keys = keys_of(stack)
    [manifest] = [key for key in keys if key.startswith(f"packages/{PACKAGE}/") and key.endswith("/manifest.json")]
    promised = json.loads(read(stack, manifest))["files"]
    assert {f"{manifest.rpartition('/')[0]}/{file['path']}" for file in promised} <= keys
    assert PACKAGE in read(stack, "index.json").decode()
    assert any(key.endswith("/summary.json") for key in keys)
    assert stack.jobs(stopped=True) == []


def test_a_pair_is_measured_by_deployment_with_what_is_the_workers_own(stack: Stack) -> None:
    pair = pairs.small()
    for name, path in (("T.gguf", pair.target), ("D.gguf", pair.draft)):
        shutil.copyfile(path, stack.folder / "home" / name)
    files = {"target": str(stack.folder / "home" / "T.gguf"), "draft": str(stack.folder / "home" / "D.gguf")}
    asked = {"what": "speed", "budget": 16, "pairs": 2}
    ended = stack.run_deployment("measure_pair/measure-cpu", {"request": asked, **files})
    assert ended["type"] == "COMPLETED", ended
    assert "too few pairs" in ended["message"]
    [key] = [key for key in keys_of(stack) if key.startswith("reports/measure/") and key.endswith("/report.json")]
    record = json.loads(read(stack, key))["record"]
    assert (record["setup"]["device"], record["target"]["name"]) == ("cpu", "T.gguf")
    assert stack.jobs(stopped=True) == []


def test_a_cancelled_run_takes_its_containers_with_it(stack: Stack) -> None:
    run = stack.start_run(CATALOGUE_RUN, {"only": PLAIN})
    until(lambda: WORKING & set(stack.jobs()), "a job runs", 300)
    stack.cancel(run)
    until(lambda: not stack.jobs(stopped=True), "its containers are gone")
    assert stack.wait_for_end(run, 300)["type"] == "CANCELLED"


def test_a_killed_worker_loses_nothing_but_its_run(stack: Stack) -> None:
    run = stack.start_run(CATALOGUE_RUN, {"only": PLAIN})
    until(lambda: {"quantize", "check"} & set(stack.jobs()), "a later job runs", 300)
    stack.kill_worker()
    until(lambda: not stack.jobs(), "its containers ended")
    until(lambda: stack.container("worker").attrs["RestartCount"] == 1, "the engine starts the worker again")
    until(lambda: not stack.jobs(stopped=True), "the new worker removes what was left")
    state = stack.wait_for_end(run, 300)
    assert state["type"] == "CRASHED"
    assert state["message"] == f"No heartbeat for {LOST_AFTER_S} s: its worker or its host is gone."

    ended = stack.run_deployment(CATALOGUE_RUN, {"only": PLAIN})
    assert ended["message"] == "1 drafters, 0 unchanged, 1 ran: 1 pass"
    said = stack.container("worker").logs().decode()
    assert "convert to F16: from the cache (finished before with the same key)" in said
    assert any(key.startswith(f"models/{PLAIN}/") and key.endswith("/manifest.json") for key in keys_of(stack))


def test_no_secret_is_in_what_docker_or_the_database_shows(stack: Stack) -> None:
    assert stack.secret("hf_token") == TOKEN
    text = " ".join(stack.secret(name) for name in SECRETS).replace("admin:", "").replace("aws_secret_access_key", "")
    words = [word for word in text.split() if len(word) >= 20]
    assert len(words) == 5, "two passwords, two keys, a token"
    shown = {"compose config": stack.compose("config").stdout}
    for container in stack.containers():
        shown[f"inspect {container.name}"] = json.dumps(container.attrs)
        shown[f"logs {container.name}"] = container.logs().decode(errors="replace")
        shown[f"image {container.name}"] = json.dumps([container.image.attrs, container.image.history()])
    dump = ("exec", "-T", "postgres", "pg_dump", "-U", "prefect", "prefect")
    shown["database"] = stack.compose(*dump).stdout
    assert "catalogue_run" in shown["database"], "the search has something to search"
    for place, text in shown.items():
        for word in words:
            assert word not in text, place
    search = ["grep", "-rlaF", *(f"-e{word}" for word in words), str(stack.folder / "home")]
    left = subprocess.run(search, capture_output=True, check=False)
    assert left.stdout == b""


def environment_of(stack: Stack, service: str) -> dict[str, str]:
    pairs: list[str] = stack.container(service).attrs["Config"]["Env"]
    return dict(pair.split("=", 1) for pair in pairs)


def keys_of(stack: Stack) -> set[str]:
    listed: list[dict[str, Any]] = stack.s3().list_objects_v2(Bucket="drafters")["Contents"]
    return {entry["Key"] for entry in listed}


def read(stack: Stack, key: str) -> bytes:
    body: bytes = stack.s3().get_object(Bucket="drafters", Key=key)["Body"].read()
    return body
