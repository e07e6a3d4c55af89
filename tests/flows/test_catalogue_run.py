"""Whole catalogue runs by the command line, on the real hub server, store and Prefect server."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors import deserialize

from draftmill.catalogue.standing import read_standings
from draftmill.digest import sha256_json
from draftmill.store.index import read_index
from draftmill.store.local import LocalStore
from draftmill.store.manifest import read_manifest
from flows.prefect_server import prefect_server
from tests.support.catalogue_hub import (
    BORROWER,
    BROKEN,
    CATALOGUE,
    CHECKPOINT,
    CHECKPOINTS,
    DONOR,
    FOREIGN,
    GEMMA,
    HEAD,
    NAMELESS,
    PACKAGE,
    PLAIN,
    QWEN3,
    write_all,
    write_catalogue,
    write_checkpoints,
    write_plain,
)
from tests.support.hub_server import Fault, MisbehavingHub, misbehaving_hub
from tests.support.processes import with_arguments
from tests.support.stock import stock_converter
from tests.support.waiting import until

pytestmark = pytest.mark.slow

LOCKED = "tiny/PARD-Locked-1M"
COUNTS = {"pass": 4, "refused": 4, "failed": 1}


@pytest.fixture(scope="module")
def prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    before = dict(os.environ)
    with prefect_server(tmp_path_factory.mktemp("prefect")) as url:
        yield url
    os.environ.clear()
    os.environ.update(before)


class Mill:
    """The command line on this test's hub, catalogue and store."""

    def __init__(self, folder: Path, hub: MisbehavingHub, root: Path) -> None:
        self.folder, self.hub, self.root = folder, hub, root
        row = "family: DFlash, licence: openmdw-1.1"
        text = CATALOGUE.replace(row, f"{row}, donor: {DONOR}@main")
        for old, new in CHECKPOINTS.items():
            text = text.replace(old, new)
        self.catalogue = write_catalogue(folder, text)
        self.store = LocalStore(folder / "store")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "HF_ENDPOINT": self.hub.endpoint,
            "DRAFTMILL_CATALOGUE": str(self.catalogue),
            "DRAFTMILL_STORE": str(self.folder / "store"),
            "DRAFTMILL_WORK": str(self.folder / "work"),
        }
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("draftmill")), "catalogue", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, Any, str]:
        process = self.start(*arguments, "--json")
        out, err = process.communicate(timeout=500)
        return process.returncode, json.loads(out) if out else None, err


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory, prefect: str) -> Iterator[Mill]:
    """A hub that keeps the weights of one drafter to itself."""
    folder = tmp_path_factory.mktemp("catalogue")
    root = folder / "hub"
    write_all(root)
    write_checkpoints(root)
    write_plain(root, LOCKED)
    (root / LOCKED / "NOTICE").write_text("another commit than the other one's")
    with misbehaving_hub(root) as hub:
        locked = hub.server.repository(LOCKED)
        assert locked
        hub.faults.append(Fault("status", f"{locked.commit}/model.safetensors", None, status=401))
        yield Mill(folder, hub, root)


@pytest.fixture(scope="module")
def first(mill: Mill) -> tuple[int, dict[str, Any], str]:
    return mill.run("run")


def rows(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["repo"]: row for row in summary["rows"]}


def counts(summary: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in summary["rows"]:
        if row["ran"]:
            found[row["verdict"]] = found.get(row["verdict"], 0) + 1
    return found


def test_one_drafters_failure_is_one_row(first: tuple[int, dict[str, Any], str]) -> None:
    code, summary, err = first
    assert (code, counts(summary)) == (1, COUNTS), err
    found = rows(summary)
    assert {repo: row["verdict"] for repo, row in found.items()} == {
        PACKAGE: "pass",
        PLAIN: "pass",
        BORROWER: "pass",
        CHECKPOINT: "pass",
        HEAD: "refused",
        BROKEN: "refused",
        NAMELESS: "refused",
        FOREIGN: "refused",
        LOCKED: "failed",
    }
    assert found[LOCKED]["code"] == "hub.not_permitted"
    assert found[BROKEN]["code"] == "intake.body_truncated"
    assert [each["code"] for each in found[HEAD]["refusals"]] == ["gumiho.no_config", "gumiho.flat_verifier"]
    assert summary["unlisted"] == [BROKEN, LOCKED]
    assert "Traceback" not in err


def test_what_passed_is_in_the_store_and_every_verdict_in_its_index(
    mill: Mill, first: tuple[int, dict[str, Any], str]
) -> None:
    found = rows(first[1])
    for repo in (PACKAGE, PLAIN, BORROWER, CHECKPOINT):
        assert mill.store.head(found[repo]["manifest"]) is not None
    stored = read_index(mill.store)
    assert stored is not None
    index = {row.entry: row for row in stored.index.newest()}
    assert {entry: row.verdict for entry, row in index.items()} == {
        PACKAGE: "pass",
        PLAIN: "pass",
        BORROWER: "pass",
        CHECKPOINT: "pass",
        HEAD: "refused",
        BROKEN: "refused",
        NAMELESS: "refused",
        FOREIGN: "refused",
    }
    for entry in (PACKAGE, PLAIN, BORROWER, CHECKPOINT):
        assert index[entry].manifest == found[entry]["manifest"]
        # What the plan computed before any work is what the manifest says.
        assert index[entry].recipe == found[entry]["recipe"]
    reason = index[HEAD].reason
    assert reason and reason.would_change == "a config.json in the repository"
    assert [each.code for each in index[HEAD].findings] == ["gumiho.no_config", "gumiho.flat_verifier"]
    judged = {pair.target: (pair.verdict, pair.off_pair) for pair in index[BORROWER].pairs}
    assert judged == {"tiny/SmolLM2-135M": ("compatible with remarks", True), "tiny/Absent": ("not judged", None)}


def test_an_accepted_package_is_published_as_a_gguf_with_its_targets_vocabulary(
    mill: Mill, first: tuple[int, dict[str, Any], str]
) -> None:
    key = rows(first[1])[PACKAGE]["manifest"]
    manifest = read_manifest((mill.store.root / key).read_bytes(), key)
    roles = {file.path: file.role for file in manifest.files}
    (name,) = (path for path, role in roles.items() if role == "model")
    assert name.startswith("Small-") and name.endswith("-Q4_1.gguf")
    account = name.replace(".gguf", ".conversion.json")
    assert roles[account] == roles["gate.json"] == "evidence"
    assert roles["LICENSE.OpenMDW-1.1"] == "licence"
    assert manifest.donor and manifest.donor.source.repo == DONOR
    folder = (mill.store.root / key).parent
    assert hashlib.sha256((folder / account).read_bytes()).hexdigest() == manifest.donor.proof
    said = json.loads((folder / account).read_text())
    assert (said["exact"], said["vocabulary"]["proof"]["differences"]) == (True, [])
    assert "every value is the package's" in manifest.can[1]
    fields = GGUFReader(folder / name).fields
    assert fields["dflash.target_layers"].contents() == [2, 6, 10]  # of a config that says 1, 5, 9
    assert len(fields["tokenizer.ggml.tokens"].contents()) == 49152
    assert fields["general.license"].contents() == manifest.licence.id
    stored = read_index(mill.store)
    assert stored
    (row,) = (row for row in stored.index.newest() if row.entry == PACKAGE)
    assert [quant.encoding for quant in row.quants] == ["Q4_1"]


def test_a_checkpoint_is_published_as_a_gguf_that_holds_its_bytes_and_its_targets_tokens(
    mill: Mill, first: tuple[int, dict[str, Any], str]
) -> None:
    row = rows(first[1])[CHECKPOINT]
    assert (row["route"], row["pairs"]) == ("dflash", [])
    (remark,) = row["remarks"]
    assert f"{QWEN3}@main is not pinned" in remark
    manifest = read_manifest((mill.store.root / row["manifest"]).read_bytes(), row["manifest"])
    roles = {file.path: file.role for file in manifest.files}
    (name,) = (path for path, role in roles.items() if role == "model")
    assert name.startswith("Small-DFlash-b8-") and name.endswith("-BF16.gguf")
    account = name.replace(".gguf", ".conversion.json")
    assert roles == {name: "model", account: "evidence", "LICENSE": "licence"}
    # The code beside the weights was never downloaded.
    taken = sorted(file.path for file in manifest.source.files)
    assert taken == ["LICENSE", "README.md", "config.json", "model.safetensors"]
    folder = (mill.store.root / row["manifest"]).parent
    assert manifest.donor and manifest.donor.source.repo == QWEN3
    assert hashlib.sha256((folder / account).read_bytes()).hexdigest() == manifest.donor.proof
    assert (manifest.licence.id, manifest.licence.text) == ("MIT", "LICENSE")
    assert [(each.name, each.relation, each.licence) for each in manifest.lineage] == [(QWEN3, "donor", "apache-2.0")]
    assert "every value is the checkpoint's" in manifest.can[0]
    read = GGUFReader(folder / name)
    assert read.fields["general.architecture"].contents() == "dflash"
    assert read.fields["dflash.target_layers"].contents() == [2, 6, 10]  # of a config that says 1, 5, 9
    vocabulary = json.loads((mill.root / QWEN3 / "tokenizer.json").read_text())["model"]["vocab"]
    tokens = read.fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == 300 and tokens[: len(vocabulary)] == sorted(vocabulary, key=vocabulary.__getitem__)
    source = dict(deserialize((mill.root / CHECKPOINT / "model.safetensors").read_bytes()))
    held = {each.name: each.data.tobytes() for each in read.tensors}
    assert held["blk.0.ffn_up.weight"] == source["layers.0.mlp.up_proj.weight"]["data"]
    bits = [np.frombuffer(each["data"], np.uint16) for each in source.values()]
    # Matrices stay BF16; a norm, of at most 256 values, becomes the float32 that has its bits above.
    expected = [b.tobytes() if b.size > 256 else (b.astype(np.uint32) << 16).tobytes() for b in bits]
    assert sorted(held.values()) == sorted(expected)
    index = read_index(mill.store)
    assert index
    (line,) = (line for line in index.index.newest() if line.entry == CHECKPOINT)
    assert (line.family, line.route, line.targets) == ("DFlash checkpoint", "dflash", (QWEN3,))


def test_a_checkpoint_without_a_target_or_with_one_that_is_not_written_says_what_would_change_it(
    first: tuple[int, dict[str, Any], str],
) -> None:
    found = rows(first[1])
    (nameless,), (foreign,) = found[NAMELESS]["refusals"], found[FOREIGN]["refusals"]
    assert (nameless["code"], nameless["where"]) == ("catalogue.no_donor", f"drafters.{NAMELESS}.donor")
    assert nameless["measured"] is None
    assert "donor: owner/target@commit" in nameless["would_change"]
    assert found[NAMELESS]["download_bytes"] == 0
    assert (foreign["code"], foreign["measured"]) == (
        "dflash.target_architecture",
        "['Gemma4ForConditionalGeneration']",
    )
    assert "converter: stock in the row" in foreign["would_change"]


def test_every_verdict_is_on_the_pages(first: tuple[int, dict[str, Any], str], mill: Mill) -> None:
    page = (mill.store.root / "index.html").read_text()
    assert hashlib.sha256((mill.store.root / "index.json").read_bytes()).hexdigest() in page
    for repo in (PLAIN, BORROWER, CHECKPOINT, HEAD, BROKEN):
        assert f'<a href="models/{repo}/index.html">{repo}</a>' in page
    assert "gumiho.flat_verifier" in (mill.store.root / "models" / HEAD / "index.html").read_text()
    assert "off-pair" in (mill.store.root / "models" / BORROWER / "index.html").read_text()
    assert LOCKED not in page  # it failed, and a failure is no verdict


def test_pairs_are_proven_and_an_off_pair_is_flagged(first: tuple[int, dict[str, Any], str]) -> None:
    for repo, off_pair in ((PLAIN, False), (BORROWER, True)):
        row = rows(first[1])[repo]
        assert [(pair["target"], pair["off_pair"]) for pair in row["pairs"]] == [("tiny/SmolLM2-135M", off_pair)]
        assert row["pairs"][0]["verdict"].startswith("compatible")
        assert list(row["not_judged"]) == ["tiny/Absent"]


def test_the_summary_lies_in_the_store_and_in_prefect(
    mill: Mill, prefect: str, first: tuple[int, dict[str, Any], str]
) -> None:
    summary = first[1]
    assert json.loads(Path(summary["places"]["summary.json"]).read_text()) == summary
    text = Path(summary["places"]["summary.md"]).read_text()
    assert f"reports/catalogue/{summary['run']}/" in summary["places"]["summary.md"]
    for repo in rows(summary):
        assert f"| {repo} |" in text
    assert "would change the verdict: a config.json in the repository" in text
    asked = Request(f"{prefect}/artifacts/filter", b"{}", {"Content-Type": "application/json"})
    with urlopen(asked) as answer:
        artifacts = {artifact["key"]: artifact for artifact in json.load(answer)}
    assert artifacts["catalogue"]["data"] == text
    table = json.loads(artifacts["catalogue-table"]["data"])
    assert {line["drafter"]: line["verdict"] for line in table} == {
        repo: row["verdict"] for repo, row in rows(summary).items()
    }


def test_a_second_run_tries_only_what_failed_and_a_change_runs_what_changed(
    mill: Mill, first: tuple[int, dict[str, Any], str]
) -> None:
    before = read_standings(mill.store).get(PLAIN)
    plan = mill.run("plan")[1]
    assert [each["repo"] for each in plan["run"]] == [LOCKED]
    mill.hub.faults.clear()
    (mill.root / HEAD / "config.json").write_text('{"model_type": "gumiho"}')
    code, summary, err = mill.run("run")
    assert (code, counts(summary)) == (3, {"pass": 1, "no verdict": 1}), err
    found = rows(summary)
    assert found[LOCKED]["reason"] == "failed the last time: hub.not_permitted"
    assert found[HEAD]["reason"].startswith("commit ")
    assert "no longer holds" in found[HEAD]["sentence"]
    assert re.fullmatch(r"nothing changed: recipe [0-9a-f]{8}, .+Z", found[PLAIN]["reason"])
    assert read_standings(mill.store).get(PLAIN) == before
    code, summary, _ = mill.run("run", "--only", PLAIN, "--again")
    assert (code, counts(summary)) == (0, {"pass": 1})
    assert "published already" in rows(summary)[PLAIN]["sentence"]


def test_a_target_that_could_not_be_fetched_is_judged_once_it_can(
    mill: Mill, first: tuple[int, dict[str, Any], str]
) -> None:
    locked = Fault("status", f"{DONOR}/revision/main", None, status=401)
    mill.hub.faults.append(locked)
    row = rows(mill.run("run", "--only", PLAIN, "--again")[1])[PLAIN]
    assert (row["verdict"], row["pairs"]) == ("pass", [])
    assert row["not_judged"].keys() == {DONOR, "tiny/Absent"}
    assert row["unreached"] == [DONOR]  # the other one is refused: the hub does not have it
    assert mill.run("plan", "--only", PLAIN)[1]["run"] == []
    mill.hub.faults.remove(locked)
    row = rows(mill.run("run", "--only", PLAIN)[1])[PLAIN]
    assert row["reason"] == f"not judged against {DONOR} the last time"
    assert ([pair["target"] for pair in row["pairs"]], row["unreached"]) == ([DONOR], [])
    assert mill.run("plan", "--only", PLAIN)[1]["run"] == []


def test_a_checkpoint_is_published_from_a_mirror_without_pins(mill: Mill, tmp_path: Path) -> None:
    here = Mill(tmp_path, mill.hub, mill.root)
    mirror = f"file://{mill.root}"
    code, summary, err = here.run("run", "--only", CHECKPOINT, "--hub", mirror)
    assert (code, counts(summary)) == (0, {"pass": 1}), err
    row = rows(summary)[CHECKPOINT]
    manifest = read_manifest((here.store.root / row["manifest"]).read_bytes(), row["manifest"])
    taken = [[file.path, file.size, file.sha256] for file in manifest.source.files]
    assert [path for path, *_ in taken] == ["LICENSE", "README.md", "config.json", "model.safetensors"]
    assert row["commit"] == manifest.source.commit == sha256_json(taken)
    assert here.run("plan", "--only", CHECKPOINT, "--hub", mirror)[1]["run"] == []


def test_what_does_not_fit_is_a_row_and_the_small_ones_run(mill: Mill, first: tuple[int, dict[str, Any], str]) -> None:
    code, summary, _ = mill.run("run", "--again", "--only", "*", "--memory", "1GiB", "--max-parallel", "3")
    found = rows(summary)
    assert code == 1
    assert {repo for repo, row in found.items() if row["code"] == "catalogue.no_room"} == {
        PLAIN,
        BORROWER,
        BROKEN,
        LOCKED,
    }
    assert found[PACKAGE]["verdict"] == found[CHECKPOINT]["verdict"] == "pass"
    assert "--memory" in found[PLAIN]["sentence"]


def test_an_interrupted_run_ends_its_jobs_and_the_next_one_goes_on(mill: Mill, prefect: str, tmp_path: Path) -> None:
    here = Mill(tmp_path, mill.hub, mill.root)
    process = here.start("run", "--only", "tiny/PARD*", "--max-parallel", "2")

    def works() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(jobs_below(tmp_path))

    until(works, "a job runs", within_s=300)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted; what was finished is kept: the same command goes on" in err
    assert "Traceback" not in err
    until(lambda: not jobs_below(tmp_path), "its jobs end")
    code, summary, err = here.run("run", "--only", PLAIN)
    assert (code, counts(summary)) == (0, {"pass": 1}), err


def jobs_below(folder: Path) -> list[int]:
    """Processes that work in this folder, the command itself left out."""
    return with_arguments(str(folder), "jobs.")


@pytest.mark.stock
def test_the_row_can_have_the_stock_converter_write_the_vocabulary(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = stock_converter()
    row = f"{{family: DFlash checkpoint, donor: {GEMMA}@main"
    mill.catalogue.write_text(mill.catalogue.read_text().replace(row, f"{row}, converter: stock"))
    status, summary, _ = mill.run("run", "--only", FOREIGN)
    (failed,) = summary["rows"]
    assert (status, failed["verdict"], failed["code"]) == (1, "failed", "convert.stock_missing")

    monkeypatch.setenv("DRAFTMILL_STOCK_CONVERTER", str(stock.script))
    monkeypatch.setenv("DRAFTMILL_STOCK_PYTHON", str(stock.python))
    status, summary, _ = mill.run("run", "--only", FOREIGN)
    (passed,) = summary["rows"]
    assert (status, passed["verdict"]) == (0, "pass")
    manifest = read_manifest((mill.store.root / passed["manifest"]).read_bytes(), passed["manifest"])
    assert "convert_hf_to_gguf" in {tool.name for tool in manifest.tools}
    assert manifest.parameters["converter"] == "stock"
