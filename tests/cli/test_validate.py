"""`draftmill validate`: what it prints, what it writes, and how it ends."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from draftmill.cli import main, validate
from draftmill.hub.server import serve
from draftmill.outcome import InputOutput, Refusal, Refused
from tests.support.dflash_packages import edit_config, edit_container, tiny

REPO = "FastFlowLM/Tiny-DFlash-NPU2"


@pytest.fixture(scope="module", autouse=True)
def mounted() -> None:
    main.app.command("validate")(validate.validate)


def run(*arguments: str, **environment: str) -> Result:
    plain = {"HF_ENDPOINT": "http://127.0.0.1:9", "COLUMNS": "200"}
    return CliRunner().invoke(main.app, ["validate", *arguments], env=plain | environment)


def value(result: Result) -> Any:
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("validate") / "package"
    tiny(folder, 1)
    return folder


def test_a_sound_package_ends_with_0_and_shows_the_evidence(package: Path) -> None:
    result = run(str(package))
    assert result.exit_code == 0
    assert "median of minimum/scale -7." in result.stdout
    assert "pass: passes 55 of 55 checks" in result.stdout


def test_a_refused_package_ends_with_1_and_says_why_and_what_to_do(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"head_dim": 32})
    result = run(str(tmp_path / "p"))
    assert result.exit_code == 1
    assert "gate.head_dim" in result.stdout
    assert "measured 64, expected 32" in result.stdout
    assert "Download the package again" in result.stdout


def test_no_verdict_ends_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails in the middle of the container."""
    tiny(tmp_path / "p", 1)
    read = os.preadv

    def failing(descriptor: int, buffers: Any, offset: int) -> int:
        if offset == 0:
            raise OSError(5, "Input/output error")
        return read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    result = run(str(tmp_path / "p"), "--json")
    assert result.exit_code == 3
    assert value(result)["verdict"] == "no verdict"
    assert "look at the disk" in result.stdout


HOSTILE = "x\u202egnp\x1b[2Jy\u2028\x7f\u200b"
"""Turns what follows around, clears the screen, breaks the line, and hides."""


def hidden(text: str) -> set[str]:
    """Characters that a reader does not see as they are: of no line of ours."""
    return {each for each in text if not each.isprintable() and each != "\n"}


def hostile(folder: Path) -> Path:
    """A package of which nearly everything that a stranger can name is named so."""
    tiny(folder, 1)
    edit_config(
        folder, lambda content: content | {HOSTILE: 1, "model_type": HOSTILE, "rope_scaling": {"type": HOSTILE}}
    )
    edit_container(folder, lambda tensors: tensors.update({HOSTILE: tensors["model.norm.weight"]}))
    with (folder / "MANIFEST.sha256").open("a") as manifest:
        manifest.write(f"{'a' * 64}  {HOSTILE}\n{HOSTILE}\n")
    return folder


def test_no_name_from_a_package_moves_the_cursor_hides_or_reorders_text(tmp_path: Path) -> None:
    folder = hostile(tmp_path / HOSTILE)
    result = run(str(folder), "--report", str(tmp_path / "report"))
    page, value = ((tmp_path / "report" / name).read_text() for name in ("report.html", "gate.json"))
    assert result.exit_code == 1
    for text in (result.stdout, page, value):
        assert hidden(text) == set()
    for text in (result.stdout, page):
        assert "\\u202egnp\\x1b[2Jy\\u2028" in text
    where = {refusal["where"] for check in json.loads(value)["checks"] for refusal in check["refusals"]}
    assert f"model.q4nx:{HOSTILE}" in where
    assert hidden(run(str(folder), "--json").stdout) == set()


def test_neither_does_what_ends_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main.report(Refused(Refusal(f"a.{HOSTILE}", HOSTILE, [HOSTILE], {HOSTILE: 1}, HOSTILE)))
    main.report(InputOutput(HOSTILE, code=HOSTILE))
    said = capfd.readouterr().err
    assert said.count("\\u202egnp\\x1b[2Jy\\u2028") == 5
    assert said.count("\\u202egnp\\u001b[2Jy\\u2028") == 2, "values are told as JSON has them"
    assert hidden(said) == set()


def test_lines_of_a_failure_stay_lines_and_text_draws_no_picture(capfd: pytest.CaptureFixture[str]) -> None:
    main.report(InputOutput("first :x: line\nfailed second", code="a.b"))
    assert capfd.readouterr().err.splitlines() == ["failed a.b: first :x: line", "  failed second"]


def test_what_could_not_be_run_is_listed_once_a_reason(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"rope_theta": None})
    result = run(str(tmp_path / "p"))
    assert "not run, because rope_theta is not stated: config.rope, scalars.rope_theta\n" in result.stdout
    assert "refused: fails 1 of 55 checks; 2 could not be run (" in result.stdout


@pytest.mark.parametrize("option", ["--report", "--work", "--store", "--hub"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_option_is_wrong_usage_and_never_the_folder_that_one_is_in(
    option: str, value: str, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(str(package), option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_this_folder_may_be_named(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(str(package), "--report", ".").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate.json", "report.html"]


@pytest.mark.parametrize("arguments", [[], [""], [" "], ["x", "--selftest"], ["--unknown"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_json_is_one_object_with_every_check(package: Path) -> None:
    found = value(run(str(package), "--json"))
    assert found["verdict"] == "pass"
    assert {"id", "title", "place", "measured", "expected", "verdict", "evidence"} <= found["checks"][0].keys()
    assert found["files"][-1]["path"] == "model.q4nx"


def test_a_report_goes_where_it_is_asked_to_and_never_into_the_package(package: Path, tmp_path: Path) -> None:
    assert run(str(package), "--report", str(tmp_path / "report")).exit_code == 0
    assert json.loads((tmp_path / "report" / "gate.json").read_text())["verdict"] == "pass"
    assert (tmp_path / "report" / "report.html").read_text().startswith("<!doctype html>")
    before = sorted(package.iterdir())
    assert run(str(package), "--report", str(package / "report")).exit_code == 1
    assert sorted(package.iterdir()) == before


@pytest.mark.parametrize("place", ["file", "file/below", "loop", "/proc/x", "/dev/null"])
def test_a_report_folder_that_cannot_be_is_wrong_usage_before_the_gate(
    package: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate, "_gated", lambda *_: pytest.fail("the gate ran"))
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    result = run(str(package), "--report", str(tmp_path / place))
    assert result.exit_code == 2
    assert "nothing can be written into" in result.stderr


def test_a_report_that_fails_to_be_written_is_a_failure_with_a_sentence(package: Path, tmp_path: Path) -> None:
    (tmp_path / "gate.json").mkdir()
    result = run(str(package), "--report", str(tmp_path))
    assert result.exit_code == 1
    assert "The report could not be written" in result.stderr


START = [sys.executable, "-c", "from draftmill.cli.main import main; main()", "validate"]


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_output_that_cannot_be_written_is_a_failure_with_a_sentence(package: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*START, str(package), *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("module", ["rich.console", "draftmill.cli.dflash"])
def test_an_interrupt_while_modules_load_ends_quietly_with_130(module: str) -> None:
    """The signal arrives when the module of that name is looked for."""
    finder = f"""
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""
    done = subprocess.run(
        [sys.executable, "-c", finder + START[2], "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_repository_is_downloaded_verified_and_gated(tmp_path: Path) -> None:
    tiny(tmp_path / "hub" / REPO, 1)
    (tmp_path / "hub" / REPO / "LICENSE").write_text("terms")
    (tmp_path / "hub" / REPO / "banner.png").write_bytes(b"png")
    with (tmp_path / "hub" / REPO / "MANIFEST.sha256").open("a") as manifest:
        manifest.write(f"{hashlib.sha256(b'png').hexdigest()}  banner.png\n")
    with serve(tmp_path / "hub") as hub:
        result = run(REPO, "--json", "--work", str(tmp_path / "work"), HF_ENDPOINT=hub.endpoint)
    assert result.exit_code == 0
    assert value(result)["verdict"] == "pass"
    assert "not downloaded and not compared: banner.png" in result.stdout
    (folder,) = (tmp_path / "work" / "packages" / REPO).iterdir()
    names = ["LICENSE", "MANIFEST.sha256", "config.json", "model.q4nx"]
    assert sorted(path.name for path in folder.iterdir()) == names


def test_a_mirror_folder_serves_as_a_hub(tmp_path: Path) -> None:
    tiny(tmp_path / "hub" / REPO, 2)
    arguments = (f"{REPO}@main", "--work", str(tmp_path / "work"), "--hub", f"file://{tmp_path / 'hub'}")
    assert run(*arguments).exit_code == 0


def test_a_repository_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    result = run("FastFlowLM/None", "--json", "--hub", f"file://{tmp_path / 'hub'}")
    assert result.exit_code == 1
    assert value(result)["refusals"][0]["code"] == "hub.repo_missing"


def test_publishing_without_the_pipeline_says_what_is_missing(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validate, "PIPELINE", "draftmill.not_installed")
    result = run(str(package), "--publish", "--json")
    assert result.exit_code == 1
    assert "pip install 'draftmill[pipeline]'" in value(result)["error"]


def test_the_selftest_prints_its_matrix_and_ends_with_0() -> None:
    result = run("--selftest")
    assert result.exit_code == 0
    assert "only it" in result.stdout
    assert "not only it" not in result.stdout
    assert "controls for 62 checks" in result.stdout


def test_a_selftest_with_a_gap_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    from draftmill.dflash import selftest

    gap = selftest.SelfTest((), ("scales.finite",), {})
    monkeypatch.setattr(selftest, "run_selftest", lambda progress: gap)
    result = run("--selftest")
    assert result.exit_code == 1
    assert "scales.finite has no control" in result.stdout
