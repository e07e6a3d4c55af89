"""The flow validate_package with a run: the measuring job between gate and publication, and one report of both."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftmill.store.manifest import read_manifest
from tests.e2e.mill import published_files
from tests.support.dflash_packages import tiny
from tests.support.hugging_face_target import write_target
from tests.support.inputs import ROOT

pytest.importorskip("torch", reason="torch is not installed")

PROGRAM = """
import json, sys
from pathlib import Path
from draftmill.cli.validate_run import asked_run
from flows.validate_command import validate_package
root = Path(sys.argv[1])
place = dict(hub=f"file://{root}/hub", store=f"{root}/store", work=root / "work", runner="process")
def run(max_new):
    asked = asked_run([root / "prompts.jsonl"], False, max_new, "float32", "cpu").model_dump(mode="json")
    return validate_package("fast/Small", **place, run=asked, target=root / "target")
print(json.dumps([validate_package("fast/Small", **place), run(8), run(8), run(9)]))
"""


def test_a_run_is_published_in_the_gates_report_and_is_part_of_what_it_is_made_of(
    tmp_path: Path, prefect_state: Path
) -> None:
    tiny(tmp_path / "hub" / "fast" / "Small", 1)
    (tmp_path / "hub" / "fast" / "Small" / "README.md").write_text("---\nlicense: mit\n---\n")
    write_target(tmp_path / "target")
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"name": "one", "kind": "counting", "text": "w1 w2 w3"}))
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    alone, first, again, longer = json.loads(done.stdout.splitlines()[-1])
    # A random draft: the gate has nothing against it, and the target accepts none of its drafts.
    assert (alone["gate"]["verdict"], first["gate"]["verdict"]) == ("pass", "refused")
    assert again == first, "the same run of the same package is there already"
    places = {each["published"]["manifest.json"] for each in (alone, first, longer)}
    assert len(places) == 3, "with a run, and with another run, it is another publication"
    manifest = read_manifest(Path(first["published"]["manifest.json"]).read_bytes(), "manifest.json")
    assert {"gate.json", "report.html", "report.md", "rounds.svg"} <= {file.path for file in manifest.files}
    assert {tool.name for tool in manifest.tools} >= {"numpy", "transformers"}
    published: Any = json.loads(Path(first["published"]["gate.json"]).read_text())
    assert published == first["gate"]
    assert published["run"]["record"]["target"]["name"] == "target"
    assert published["run"]["record"]["draft"]["name"] == "Small"
    assert len([name for name in published_files(tmp_path / "store") if name.endswith("gate.json")]) == 3
