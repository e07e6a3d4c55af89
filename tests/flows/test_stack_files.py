"""What the stack's files say, without starting it."""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from draftmill import __version__
from flows.catalogue_order import CatalogueOrder
from flows.measure_pair import MeasureOrder
from flows.order import Order
from tests.support.stack import COMPOSE, ROOT

TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
}


def setup(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "DRAFTMILL_SECRETS": str(folder / "secrets"),
        "DRAFTMILL_ENV": str(folder / "env"),
        "DOCKER_SOCKET": str(folder / "socket"),
    }
    return subprocess.run(
        [ROOT / "stack" / "setup", *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    import socket

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    return tmp_path


def composed(folder: Path, **settings: str) -> Any:
    """What compose makes of the files with these settings alone."""
    command = [str(COMPOSE), "--env-file", str(folder / "env"), "config", "--format", "json"]
    environment = {"PATH": os.environ["PATH"], "DRAFTMILL_SECRETS": str(folder / "secrets"), **settings}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_setup_writes_secrets_that_differ_and_changes_nothing_after(folder: Path) -> None:
    assert setup(folder).returncode == 0
    secrets = {path.name: path.read_text() for path in (folder / "secrets").iterdir()}
    assert secrets.keys() == {"postgres_password", "prefect_auth", "store_credentials", "hf_token", "sign_key"}
    assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700
    assert len(secrets["postgres_password"]) == 48
    assert setup(folder).stderr == ""
    assert {path.name: path.read_text() for path in (folder / "secrets").iterdir()} == secrets
    (folder / "other").mkdir()
    (folder / "socket").rename(folder / "other" / "socket")
    assert setup(folder / "other").returncode == 0
    assert (folder / "other" / "secrets" / "postgres_password").read_text() != secrets["postgres_password"]


def test_setup_says_what_is_missing(folder: Path) -> None:
    joined = setup(folder, "--join", "http://10.8.0.1:4200/api", "npu")
    assert (joined.returncode, joined.stderr) == (
        78,
        f"setup: copy {folder}/secrets/prefect_auth from the main host first\n",
    )
    (folder / "socket").unlink()
    assert setup(folder).returncode == 69


def test_every_service_is_confined_and_nothing_leaves_loopback(folder: Path) -> None:
    setup(folder)
    services = composed(folder)["services"]
    assert services.keys() == {"prepare", "postgres", "server", "s3", "bootstrap", "worker"}
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["init"], name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ())), name
        assert "privileged" not in service, name
        assert name == "prepare" or "cap_add" not in service, name
        if name in ("server", "bootstrap", "worker"):
            assert service["environment"].items() >= TELEMETRY.items(), name
        if name in ("postgres", "server", "s3", "worker"):
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"], name
    assert services["server"]["environment"]["PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"].endswith(".filesystem")
    opened = composed(folder, DRAFTMILL_BIND="10.8.0.1")["services"]["server"]["ports"]
    assert [port["host_ip"] for port in opened] == ["10.8.0.1"], "the check sees another address"


def test_what_a_shell_has_for_the_tools_leaves_the_stack_alone(folder: Path) -> None:
    setup(folder)
    shell = {"PREFECT_API_URL": "http://127.0.0.1:9999/api", "DRAFTMILL_STORE": "./mill-store", "DRAFTMILL_WORK": "w"}
    assert composed(folder, **shell) == composed(folder)
    assert composed(folder, STACK_STORE="s3://other")["services"]["worker"]["environment"]["DRAFTMILL_STORE"] == (
        "s3://other"
    )


def test_a_host_that_joins_runs_a_worker_alone(folder: Path) -> None:
    (folder / "secrets").mkdir()
    for name in ("prefect_auth", "store_credentials"):
        (folder / "secrets" / name).write_text("theirs")
    assert setup(folder, "--join", "http://10.8.0.1:4200/api", "npu").returncode == 0
    assert (folder / "secrets" / "prefect_auth").read_text() == "theirs"
    services = composed(folder)["services"]
    assert services.keys() == {"prepare", "bootstrap", "worker"}
    given = services["worker"]["environment"]
    assert given["PREFECT_API_URL"] == "http://10.8.0.1:4200/api"
    assert given["DRAFTMILL_STORE"] == "s3://drafters?endpoint_url=http://10.8.0.1:8333"
    assert given["DRAFTMILL_POOL"] == "npu"
    assert services["bootstrap"]["environment"]["DRAFTMILL_DEPLOYMENTS"] == "prefect.device.yaml"


def test_images_and_deployments_name_what_is_there(folder: Path) -> None:
    setup(folder)
    assert composed(folder)["services"]["worker"]["image"] == f"draftmill/worker:{__version__}"
    for file in ("prefect.yaml", "prefect.device.yaml"):
        for deployment in yaml.safe_load((ROOT / file).read_text())["deployments"]:
            path, _, flow = deployment["entrypoint"].partition(":")
            assert f"def {flow}(" in (ROOT / path).read_text(), deployment["name"]


@pytest.mark.parametrize("order", [CatalogueOrder, Order, MeasureOrder])
def test_what_an_order_leaves_open_is_the_workers(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_RUNNER", "docker")
    monkeypatch.setenv("DRAFTMILL_STORE", "s3://theirs")
    monkeypatch.setenv("DRAFTMILL_WORK", "/their/work")
    asked = {CatalogueOrder: {}, Order: {"ref": "a/b"}, MeasureOrder: {"request": {}, "target": "t", "draft": "d"}}
    given = order.model_validate(asked[order])
    assert (given.runner, given.store, given.work) == ("docker", "s3://theirs", Path("/their/work"))
    named = order.model_validate({**asked[order], "runner": "process", "store": "./mine"})
    assert (named.runner, named.store) == ("process", "./mine")
    monkeypatch.setenv("DRAFTMILL_RUNNER", "podman")
    with pytest.raises(ValueError, match="'process' or 'docker'"):
        order.model_validate(asked[order])
