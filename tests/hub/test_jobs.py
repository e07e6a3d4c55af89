"""The jobs as a runner starts them: a request and a result, killed and resumed, searched for the token."""

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

import jobs.download
import jobs.resolve
from jobs.contract import perform
from tests.support.hub_server import Fault, MisbehavingHub, misbehaving_hub, write_mirror
from tests.support.waiting import until

SIZE = 8_000_000
WEIGHTS = "model.safetensors"
CANARY = "hf_canary4711"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mirror(tmp_path_factory.mktemp("mirror"), weights=SIZE)


class Folder:
    """A job's folder."""

    def __init__(self, place: Path, job: str, token: str | None = None, **request: Any) -> None:
        self.place, self.job, self.log = place, job, b""
        place.mkdir(parents=True, exist_ok=True)
        if token:
            secret = place.parent / "token"
            secret.write_text(token + "\n")
            request["secrets"] = {"hf_token": str(secret)}
        (place / "request.json").write_text(json.dumps({"job": job, **request}))

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"jobs.{self.job}", str(self.place)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self) -> int:
        """As a process of its own."""
        process = self.start()
        self.log += process.communicate(timeout=60)[0]
        return process.returncode

    def perform(self) -> int:
        """Here."""
        work = {"resolve": jobs.resolve.work, "download": jobs.download.work}[self.job]
        return perform(self.job, work, self.place).exit_code

    @property
    def result(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads((self.place / "result.json").read_text())
        return value

    @property
    def out(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.place / "out").iterdir()}

    def everything(self) -> bytes:
        """All that it wrote and said."""
        return self.log + b"".join(path.read_bytes() for path in self.place.rglob("*") if path.is_file())


def resolve(place: Path, **parameters: Any) -> dict[str, Any]:
    folder = Folder(place, "resolve", parameters={"files": "model", **parameters})
    assert folder.perform() == 0
    listing: dict[str, Any] = folder.result["facts"]["listing"]
    return listing


def original(mirror: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (mirror / "acme/tiny").iterdir()}


def test_a_reference_becomes_verified_files_from_a_hub_and_from_a_mirror(mirror: Path, tmp_path: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        for name, source in (("hub", {"endpoint": hub.endpoint}), ("mirror", {"mirror": f"file://{mirror}"})):
            listing = resolve(tmp_path / name / "resolve", ref="acme/tiny", **source)
            assert listing["source"] == name
            job = Folder(tmp_path / name / "download", "download", parameters={"listing": listing, **source})
            assert job.perform() == 0
            assert job.out == original(mirror)
            assert {output["path"] for output in job.result["outputs"]} == set(original(mirror))
            assert job.result["facts"] == {"received_bytes": sum(f["size"] for f in listing["files"]), "kept_bytes": 0}
    assert job.result["tools"] == []


def test_a_folder_comes_in_by_its_slot(mirror: Path, tmp_path: Path) -> None:
    slots = {"folder": str(mirror / "acme/tiny")}
    first = Folder(tmp_path / "a", "resolve", inputs=slots, parameters={"files": "tokenizer"})
    assert first.perform() == 0
    listing = first.result["facts"]["listing"]
    assert (listing["source"], listing["repo"]) == ("folder", None)
    second = Folder(tmp_path / "b", "download", inputs=slots, parameters={"listing": listing})
    assert second.perform() == 0
    assert set(second.out) == {"README.md", "config.json"}


def kill_while_it_downloads(hub: MisbehavingHub, job: Folder, after: int) -> None:
    """SIGKILL as soon as `after` bytes of the weights are on disk, where the hub has stalled."""
    partial = job.place / "out" / f"{WEIGHTS}.partial"
    hub.faults.append(Fault("stall", WEIGHTS, after=after))
    process = job.start()
    until(lambda: partial.exists() and partial.stat().st_size > after - 300_000, f"{after} bytes")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (job.place / "result.json").exists()
    assert WEIGHTS not in job.out


@pytest.mark.parametrize("damaged", [False, True])
def test_killed_midway_it_continues_and_what_was_damaged_meanwhile_is_fetched_again(
    mirror: Path, tmp_path: Path, damaged: bool
) -> None:
    with misbehaving_hub(mirror) as hub:
        source = {"endpoint": hub.endpoint}
        listing = resolve(tmp_path / "resolve", ref="acme/tiny", **source)
        job = Folder(tmp_path / "download", "download", parameters={"listing": listing, **source})
        kill_while_it_downloads(hub, job, 5_000_000)
        partial = job.place / "out" / f"{WEIGHTS}.partial"
        there = partial.stat().st_size
        if damaged:
            with partial.open("r+b") as stream:
                stream.seek(1000)
                stream.write(b"\xff\xff\xff\xff")
        assert job.run() == 0, job.log
        ranges = [asked.headers.get("range") for asked in hub.asked_for(WEIGHTS)]
    assert ranges == [None, f"bytes={there}-"] + [None] * damaged
    assert job.out == original(mirror)
    kept = job.result["facts"]["kept_bytes"]
    assert kept < 1000 if damaged else kept >= there


def test_killed_and_then_given_wrong_bytes_it_refuses_and_leaves_none_of_them(mirror: Path, tmp_path: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        source = {"endpoint": hub.endpoint}
        listing = resolve(tmp_path / "resolve", ref="acme/tiny", **source)
        job = Folder(tmp_path / "download", "download", parameters={"listing": listing, **source})
        kill_while_it_downloads(hub, job, 5_000_000)
        hub.faults.append(Fault("corrupt", WEIGHTS, None, after=SIZE - 1))
        assert job.run() == 65
    assert job.result["outcome"] == "refused"
    assert [r["code"] for r in job.result["refusals"]] == ["hub.digest"]
    assert {name for name in job.out if name.startswith("model")} == set()


def echoing(fault: Fault) -> Fault:
    """The hub sends the token back, in every header and body that a client might show."""
    echo = {"X-Error-Message": CANARY, "X-Request-Id": CANARY, "X-HF-Warning": f"{uuid.uuid4()}; {CANARY}"}
    changes = {"headers": echo | fault.headers, "body": json.dumps({"error": CANARY})}
    return Fault(**{**vars(fault), **changes})


@pytest.mark.parametrize(
    ("fault", "exit_codes"),
    [
        (None, [0, 0]),
        (Fault("status", times=None, status=401), [77, 77]),
        (Fault("status", times=None, status=403, headers={"X-Error-Code": "GatedRepo"}), [77, 77]),
        (Fault("status", times=None, status=404), [65, 65]),
        (Fault("status", times=None, status=400), [69, 69]),
        (Fault("corrupt", WEIGHTS, None), [0, 65]),
        (Fault("redirect", times=None), [69, 69]),
    ],
)
def test_the_token_reaches_the_hub_and_is_found_nowhere_else(
    mirror: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    fault: Fault | None,
    exit_codes: list[int],
) -> None:
    with misbehaving_hub(mirror) as hub:
        source = {"endpoint": hub.endpoint}
        listing = resolve(tmp_path / "listing", ref="acme/tiny", **source)
        hub.requests.clear()
        if fault:
            hub.faults.append(echoing(fault))
        folders = [
            Folder(tmp_path / "a", "resolve", CANARY, parameters={"ref": "acme/tiny", "files": "model", **source}),
            Folder(tmp_path / "b", "download", CANARY, parameters={"listing": listing, **source}),
        ]
        assert [folder.perform() for folder in folders] == exit_codes
        assert hub.requests
        assert all(asked.headers["authorization"] == f"Bearer {CANARY}" for asked in hub.requests)
    said = "".join(capfd.readouterr()).encode()
    for folder in folders:
        assert folder.everything()
        assert CANARY.encode() not in folder.everything() + said


def test_the_token_is_not_shown_even_when_the_client_is_told_to_show_everything(
    mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DEBUG", "1")
    with misbehaving_hub(mirror, echoing(Fault("status", times=None, status=401))) as hub:
        parameters = {"ref": "acme/tiny", "files": "model", "endpoint": hub.endpoint}
        job = Folder(tmp_path / "a", "resolve", CANARY, parameters=parameters)
        assert job.run() == 77
        assert hub.requests[0].headers["authorization"] == f"Bearer {CANARY}"
    assert CANARY.encode() not in job.everything()


def test_a_token_that_no_header_can_hold_is_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parameters = {"ref": "acme/tiny", "files": "model", "endpoint": "http://127.0.0.1:9"}
    job = Folder(tmp_path / "a", "resolve", f"{CANARY}\nX-Evil: yes", parameters=parameters)
    assert job.perform() == 78
    assert job.result["error_code"] == "hub.token"
    assert CANARY.encode() not in job.everything() + "".join(capfd.readouterr()).encode()


@pytest.mark.parametrize(
    ("job", "parameters"),
    [
        ("resolve", {"ref": "acme/tiny", "files": "model"}),
        ("resolve", {"ref": "acme/tiny", "endpoint": "http://127.0.0.1:9"}),
        ("resolve", {"ref": "acme/tiny", "files": "model", "endpoint": "http://127.0.0.1:9", "verify": False}),
        ("download", {"endpoint": "http://127.0.0.1:9"}),
        ("download", {"listing": {"files": []}, "endpoint": "http://127.0.0.1:9"}),
    ],
)
def test_a_request_that_lacks_something_or_says_too_much_is_a_wrong_setting(
    tmp_path: Path, job: str, parameters: dict[str, Any]
) -> None:
    folder = Folder(tmp_path / "job", job, parameters=parameters)
    assert folder.perform() == 78
    assert folder.result["outcome"] == "failed"
    assert folder.result["error"]


def test_offline_mode_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    parameters = {"ref": "acme/tiny", "files": "model", "endpoint": "http://127.0.0.1:9"}
    job = Folder(tmp_path / "job", "resolve", parameters=parameters)
    assert job.run() == 78
    assert job.result["error_code"] == "hub.offline"
