"""`draftmill gc`: says what would go and removes nothing, then removes just that."""

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from draftmill.outcome import BadConfiguration
from draftmill.store.local import LocalStore
from flows.gc_command import gc
from tests.flows.test_cache_garbage import finished
from tests.store.drafters import contents, publish_drafter

OLD = time.time() - 40 * 86400


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def run(store: LocalStore, work: Path, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(gc)
    result = CliRunner().invoke(app, ["--json", "--store", store.name, "--work", str(work), *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_dry_run_names_what_a_run_removes_and_removes_nothing(tmp_path: Path) -> None:
    store, work = LocalStore(tmp_path / "store"), tmp_path / "work"
    publish_drafter(store, tmp_path / "source", files=contents(["F16"], size=100))
    before = files_below(store.root)
    left = "models/amd/PARD-Left/0123456789ab-01234567/model.gguf"
    store.create(left, b"left", hashlib.sha256(b"left").hexdigest())
    writer = store.root / ".draftmill" / "tmp" / "killed"
    writer.write_bytes(b"half")
    for path in store.root.rglob("*"):
        os.utime(path, (OLD, OLD))
    jobs = {name: finished(work, name, 100).digest[:32] for name in ("convert", "check")}
    for path in [*(work / "jobs" / "convert").rglob("*")]:
        os.utime(path, (OLD, OLD))
    staged = work / "measured" / "killed"
    (staged / "draft").mkdir(parents=True)
    (staged / "draft" / "model.gguf").write_bytes(b"copied")
    for path in (staged / "draft", staged):
        os.utime(path, (OLD, OLD))
    everything = files_below(store.root) | files_below(work)

    said = run(store, work, "--dry-run")
    assert [each["key"] for each in said["objects"]] == [left]
    assert said["leavings"] == [".draftmill/tmp/killed"]
    assert [Path(each["folder"]).name for each in said["jobs"]] == [jobs["convert"]]
    assert [each["folder"] for each in said["staged"]] == [str(staged)]
    assert files_below(store.root) | files_below(work) == everything

    assert {**run(store, work), "dry_run": True} == said
    assert files_below(store.root) == before
    assert (work / "jobs" / "check" / jobs["check"]).is_dir()
    assert not (work / "jobs" / "convert" / jobs["convert"]).exists()
    assert not staged.exists()
    assert run(store, work)["objects"] == []


def test_a_mistyped_store_is_told_before_anything_is_removed(tmp_path: Path) -> None:
    job = finished(tmp_path / "work", "convert", 100)
    for path in (tmp_path / "work").rglob("*"):
        os.utime(path, (OLD, OLD))
    app = typer.Typer()
    app.command()(gc)
    result = CliRunner().invoke(app, ["--store", str(tmp_path / "absent"), "--work", str(tmp_path / "work")])
    assert isinstance(result.exception, BadConfiguration)
    assert result.exception.code == "store.no_folder"
    assert (tmp_path / "work" / "jobs" / "convert" / job.digest[:32]).is_dir()
