"""The flow validate_package on a mirror and a local store: the report of a passing and of a refused package."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from draftmill.store.manifest import read_manifest
from tests.e2e.mill import published_files
from tests.support.catalogue_hub import DONOR, write_donor
from tests.support.dflash_packages import edit_config, tiny
from tests.support.inputs import ROOT

PROGRAM = """
import json, sys
from pathlib import Path
from flows.validate_command import validate_package
root = Path(sys.argv[1])
print(json.dumps([
    validate_package(ref, hub=f"file://{root}/hub", store=f"{root}/store", work=root / "work", runner="process")
    for ref in sys.argv[2:]
]))
"""
CARD = "---\nlicense: other\nlicense_name: openmdw-1.1\n---\n"


def test_reports_are_published_whatever_the_verdict_and_once(tmp_path: Path, prefect_state: Path) -> None:
    sound, spoiled = "FastFlowLM/Sound", "FastFlowLM/Spoiled"
    for repo in (sound, spoiled):
        tiny(tmp_path / "hub" / repo, 1)
        (tmp_path / "hub" / repo / "LICENSE.OpenMDW-1.1").write_text("terms")
        (tmp_path / "hub" / repo / "README.md").write_text(CARD)
    edit_config(tmp_path / "hub" / spoiled, lambda content: content | {"head_dim": 32})
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), sound, spoiled, sound]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second, again = json.loads(done.stdout.splitlines()[-1])
    assert [each["gate"]["verdict"] for each in (first, second, again)] == ["pass", "refused", "pass"]
    assert again == first
    names = {"gate.json", "report.html", "LICENSE.OpenMDW-1.1"}
    assert {Path(name).name for name in published_files(tmp_path / "store")} == names
    manifests = sorted((tmp_path / "store" / "packages" / "FastFlowLM").rglob("manifest.json"))
    assert len(manifests) == 2
    for path, ending in zip(manifests, (first, second), strict=True):
        manifest = read_manifest(path.read_bytes(), str(path))
        assert manifest.kind == "package"
        published: Any = json.loads((path.parent / "gate.json").read_text())
        assert published == ending["gate"]
        assert ending["published"]["manifest.json"] == str(path)


OTHERS_TARGET = """
import json, sys
from pathlib import Path
from flows.order import Order
from flows.prefect_server import prefect_server
root = Path(sys.argv[1])
with prefect_server(root / "work"):
    from flows.validate_package import validate_package
    order = Order(ref=sys.argv[2], tokenizer_from=sys.argv[3], hub=f"file://{root}/hub", store=f"{root}/store",
                  work=root / "work", runner="process")
    ending = validate_package(order.model_dump(mode="json"), return_state=True).result()
print(json.dumps([ending.gate["verdict"], ending.manifest_at]))
"""


def test_a_package_that_is_not_its_targets_is_published_without_a_gguf_and_says_why(
    tmp_path: Path, prefect_state: Path
) -> None:
    """A draft of 512 tokens for a target of 49,152."""
    tiny(tmp_path / "hub" / "fast" / "Small", 1)
    (tmp_path / "hub" / "fast" / "Small" / "README.md").write_text("---\nlicense: mit\n---\n")
    (tmp_path / "hub" / "fast" / "Small" / "LICENSE").write_text("terms")
    write_donor(tmp_path / "hub")
    command = [sys.executable, "-c", OTHERS_TARGET, str(tmp_path), "fast/Small", f"{DONOR}@main"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    verdict, place = json.loads(done.stdout.splitlines()[-1])
    manifest = read_manifest(Path(place).read_bytes(), place)
    assert verdict == "pass"
    assert {file.path for file in manifest.files} == {"gate.json", "report.html", "LICENSE"}
    assert manifest.donor is None
    assert "Holds no GGUF of the package: dflash.vocabulary_size" in manifest.cannot[1]
    assert "Give the target that the draft was trained for" in manifest.cannot[1]
