"""Files that cannot be trusted to be what they seem: each has its own ending and its own sentence."""

import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_files import PackageFiles
from draftmill.dflash.gate_result import Gate, Outcome, Verdict
from draftmill.dflash.layout import Layout
from draftmill.dflash.selftest_specimen import punch_hole
from draftmill.q4nx.encodings import Kind
from tests.support.dflash_packages import edit_config, tiny
from tests.support.waiting import little_work


@pytest.fixture
def package(tmp_path: Path) -> Path:
    tiny(tmp_path / "package", 1)
    return tmp_path / "package"


def only(result: Gate) -> tuple[str, str]:
    """The one check that did not pass, and its evidence."""
    (check,) = [each for each in result.checks if each.outcome in (Outcome.REFUSED, Outcome.UNDETERMINED)]
    return check.id, check.evidence


def without_manifest(package: Path) -> Path:
    (package / "MANIFEST.sha256").unlink()
    return package


def test_a_truncated_container(package: Path) -> None:
    path = without_manifest(package) / "model.q4nx"
    os.truncate(path, path.stat().st_size - 100)
    result = gate(package)
    assert result.verdict == Verdict.REFUSED
    name, evidence = only(result)
    assert name == "container.header"
    assert "cut short" in evidence


def test_a_sparse_container(tmp_path: Path) -> None:
    """A page of zeros is found in any matrix but a plain codebook, whose rows may be unused."""
    tiny(tmp_path / "p", 2, layout=Layout(codebooks=Kind.BF16))
    punch_hole(tmp_path / "p", "model.candidate_selector.successor_codebook")
    name, evidence = only(gate(tmp_path / "p"))
    assert name == "files.whole"
    assert "The file is sparse" in evidence


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A package that every user reaches: pytest's folders are its user's own, and each run of it closes them again."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "parent", "package")
        tiny(package, 1)
        for place in (package, *package.parents[:2]):
            place.chmod(0o755)
        yield package


@pytest.mark.parametrize("file", ["config.json", "model.q4nx", "MANIFEST.sha256"])
def test_a_link_out_of_the_package(package: Path, file: str) -> None:
    (package / file).rename(package.parent / "outside")
    (package / file).symlink_to(package.parent / "outside")
    result = gate(package)
    assert result.verdict == Verdict.REFUSED
    name, evidence = only(result)
    assert name == "files.links"
    assert "link out of the package" in evidence


@pytest.mark.parametrize("file", ["config.json", "model.q4nx", "MANIFEST.sha256"])
def test_a_link_that_leads_nowhere(package: Path, file: str) -> None:
    (package / file).unlink()
    (package / file).symlink_to("nowhere")
    result = gate(package)
    assert result.verdict == Verdict.REFUSED
    name, _ = only(result)
    assert name in ("files.readable", "container.found")


def test_a_link_to_itself(package: Path) -> None:
    (package / "config.json").unlink()
    (package / "config.json").symlink_to("config.json")
    assert gate(package).verdict == Verdict.REFUSED


@pytest.mark.parametrize("file", ["config.json", "model.q4nx", "MANIFEST.sha256"])
@pytest.mark.parametrize("length", [1, 2])
def test_a_loop_of_links_is_refused_by_name(package: Path, file: str, length: int) -> None:
    (package / file).unlink()
    (package / file).symlink_to(file if length == 1 else "other")
    if length == 2:
        (package / "other").symlink_to(file)
    result = gate(package)
    assert result.verdict == Verdict.REFUSED
    assert {refusal.where for refusal in result.refusals} == {file}
    assert all("put the file itself there" in refusal.sentence for refusal in result.refusals)


def test_a_listed_file_that_is_a_loop_of_links_does_not_count_as_absent(package: Path) -> None:
    (package / "more").symlink_to("more")
    with (package / "MANIFEST.sha256").open("a") as file:
        file.write(f"{'0' * 64}  more\n")
    assert only(gate(package))[0] == "files.readable"


def test_a_link_inside_the_package_is_followed(package: Path) -> None:
    (package / "model.q4nx").rename(package / "weights.q4nx")
    (package / "model.q4nx").symlink_to("weights.q4nx")
    assert gate(package).verdict == Verdict.PASS


def test_a_snapshot_of_the_hugging_face_cache_is_read_through_its_links(package: Path) -> None:
    cache = package.parent / "models--FastFlowLM--Tiny"
    snapshot = cache / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    package.rename(cache / "blobs")
    for blob in (cache / "blobs").iterdir():
        (snapshot / blob.name).symlink_to(Path("../../blobs") / blob.name)
    assert gate(snapshot).verdict == Verdict.PASS


@pytest.mark.parametrize("file", ["config.json", "model.q4nx", "MANIFEST.sha256"])
@pytest.mark.parametrize("what", ["pipe", "folder"])
def test_what_is_no_regular_file(package: Path, file: str, what: str) -> None:
    (package / file).unlink()
    os.mkfifo(package / file) if what == "pipe" else (package / file).mkdir()
    result = gate(package)
    assert result.verdict == Verdict.REFUSED
    name, evidence = only(result)
    assert name == "files.readable"
    assert f"This is a {what}" in evidence


def test_a_socket_is_refused_and_no_fault_of_the_disk(package: Path) -> None:
    (package / "model.q4nx").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(package)  # a socket's path may have a hundred bytes
        try:
            server.bind("model.q4nx")
        finally:
            os.chdir(here)
        result = gate(package)
    assert result.verdict == Verdict.REFUSED
    assert only(result)[0] == "files.readable"
    assert "This is a socket; put the file itself there" in only(result)[1]


def test_a_container_that_grows_while_it_is_read(package: Path) -> None:
    def write(what: str, done: int, total: int) -> None:
        with (package / "model.q4nx").open("ab") as file:
            file.write(b"more")

    result = gate(package, write)
    assert result.verdict == Verdict.NO_VERDICT
    name, evidence = only(result)
    assert name == "files.settled"
    now = (package / "model.q4nx").stat().st_size
    assert now > 1382856
    assert f"grew from 1382856 to {now} bytes while it was read: wait until its writer is done" in evidence


def test_a_container_that_is_replaced_while_it_is_read(package: Path) -> None:
    def write(what: str, done: int, total: int) -> None:
        other = package.parent / "other"
        other.write_bytes((package / "model.q4nx").read_bytes())
        other.replace(package / "model.q4nx")

    result = gate(package, write)
    assert result.verdict == Verdict.NO_VERDICT
    assert "was replaced or removed while it was read" in only(result)[1]


def test_a_container_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    """A large one, of which a part was read when it happens."""
    tiny(tmp_path / "p", 1, intermediate_size=4096)
    path = tmp_path / "p" / "model.q4nx"
    size = path.stat().st_size

    def write(what: str, done: int, total: int) -> None:
        os.truncate(path, 1000)

    result = gate(tmp_path / "p", write)
    assert result.verdict == Verdict.NO_VERDICT
    settled = next(check for check in result.checks if check.id == "files.settled")
    assert f"was cut from {size} to 1000 bytes" in settled.evidence
    scales = next(check for check in result.checks if check.id == "scales.finite")
    assert scales.outcome == Outcome.NOT_RUN
    assert scales.evidence == "not run, because the container was not read to its end"


PROGRAM = """
import json, os, sys
from pathlib import Path
from draftmill.dflash.gate import gate
if os.getuid() == 0:
    gate(Path(sys.argv[1]))  # what is imported late lies where only root may read
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
result = gate(Path(sys.argv[1]))
print(json.dumps([result.verdict, [c.evidence for c in result.checks if c.outcome == "undetermined" and c.withholds]]))
"""


@pytest.mark.parametrize("file", ["config.json", "model.q4nx", "MANIFEST.sha256"])
def test_a_read_protected_file_gives_no_verdict(reachable: Path, file: str) -> None:
    (reachable / file).chmod(0)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(reachable)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdict, evidence = json.loads(done.stdout)
    assert verdict == "no verdict"
    assert f"{file} cannot be read (Permission denied): give yourself the right to read it" in evidence[0]


@pytest.mark.parametrize("mode", [0o000, 0o644, 0o311])
@pytest.mark.parametrize("place", ["package", "parent"])
def test_a_folder_that_cannot_be_entered_gives_no_verdict(reachable: Path, mode: int, place: str) -> None:
    (reachable / "model.q4nx").rename(reachable / "draft.q4nx")  # so that the folder has to be listed
    closed = reachable if place == "package" else reachable.parent
    closed.chmod(mode)
    program = PROGRAM.replace("gate(Path(sys.argv[1]))  #", "gate(Path(sys.argv[2]))  #")
    other = reachable.parent / "other"
    tiny(other, 1)
    command = [sys.executable, "-c", program, str(reachable), str(other)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        closed.chmod(0o755)
    assert done.returncode == 0, done.stderr
    if mode == 0o311:
        assert json.loads(done.stdout)[0] == "refused"  # may be entered, and the manifest's container is not there
        return
    verdict, evidence = json.loads(done.stdout)
    assert verdict == "no verdict"
    assert "cannot be read (Permission denied): give yourself the right to read it" in evidence[0]


def test_a_manifest_may_list_more_files_than_can_be_open(package: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (package / "MANIFEST.sha256").open("a") as manifest:
        for number in range(200):
            (package / f"{number}.txt").write_text("x")
            (package / f"{number}.sha256").write_text("no digest")
            manifest.write(f"{hashlib.sha256(b'x').hexdigest()}  {number}.txt\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
    try:
        result = gate(package)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.verdict == Verdict.PASS
    assert len(next(check for check in result.checks if check.id == "manifest.digests").measured) == 202


@pytest.mark.parametrize("how", ["grown", "replaced", "removed"])
def test_a_listed_file_that_changes_after_it_was_read_gives_no_verdict(package: Path, how: str) -> None:
    """The config is closed by then."""

    def change(what: str, done: int, total: int) -> None:
        path = package / "config.json"
        if how == "grown":
            path.write_text(path.read_text() + " ")
        elif how == "replaced":
            (package / "other").write_text("{}")
            (package / "other").replace(path)
        else:
            path.unlink(missing_ok=True)

    result = gate(package, change)
    assert result.verdict == Verdict.NO_VERDICT
    name, evidence = only(result)
    assert name == "files.settled"
    assert ("grew from" if how == "grown" else "was replaced or removed") in evidence


TERABYTE = 1 << 40


@pytest.mark.parametrize("manifest", [True, False])
@pytest.mark.parametrize("good", [True, False])
def test_a_container_that_claims_a_terabyte_is_refused_at_once(package: Path, good: bool, manifest: bool) -> None:
    path = package / "model.q4nx"
    if not good:
        path.write_bytes(b"")
    if not manifest:
        (package / "MANIFEST.sha256").unlink()
    os.truncate(path, TERABYTE)
    with little_work(5):
        result = gate(package)
    assert result.verdict == Verdict.REFUSED
    refused = {check.id for check in result.of(Outcome.REFUSED)}
    assert refused == {"files.whole", "container.unclaimed" if good else "container.header"}
    assert result.bytes_read < 1 << 20


@pytest.mark.parametrize("file", ["config.json", "MANIFEST.sha256", "extra"])
def test_no_other_file_that_claims_a_terabyte_is_read(package: Path, file: str) -> None:
    (package / file).touch()
    os.truncate(package / file, TERABYTE)
    if file == "extra":
        with (package / "MANIFEST.sha256").open("a") as manifest:
            manifest.write(f"{'0' * 64}  extra\n")
    with little_work(5):
        result = gate(package)
    assert result.verdict == Verdict.REFUSED


def test_stored_bytes_behind_a_broken_header_are_hashed_only_for_a_manifest(package: Path) -> None:
    """Their digest is a finding of its own where one is given; else nothing could be learned from them."""
    path, size = package / "model.q4nx", 8 << 20
    path.write_bytes(b"\xff" * size)
    result = gate(package)
    assert {check.id for check in result.of(Outcome.REFUSED)} == {"container.header", "manifest.digests"}
    assert result.bytes_read > size
    result = gate(without_manifest(package))
    assert only(result)[0] == "container.header"
    assert result.bytes_read < 1 << 20
    (record,) = [file for file in result.files if file.path == "model.q4nx"]
    assert (record.size, record.sha256) == (size, None)
    evidence = {check.id: check.evidence for check in result.checks}
    assert evidence["files.readable"].endswith("model.q4nx was refused by its header or size, and not read on")
    assert evidence["scales.finite"] == "not run, because the container's header is refused or cannot be read"


def test_far_more_bytes_than_the_tensors_claim_are_refused_unread(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that cannot tell holes."""
    monkeypatch.setattr(PackageFiles, "first_hole", lambda self, file: None)
    os.truncate(without_manifest(package) / "model.q4nx", TERABYTE)
    with little_work(5):
        assert only(gate(package))[0] == "container.unclaimed"


def test_a_file_that_is_written_to_gives_no_verdict_whatever_was_found_in_it(package: Path) -> None:
    """What is refused may be only half written."""

    def write(what: str, done: int, total: int) -> None:
        with (package / "model.q4nx").open("ab") as file:
            file.write(b"more")

    edit_config(package, lambda content: content | {"head_dim": 32})
    assert gate(package).verdict == Verdict.REFUSED
    result = gate(package, write)
    assert result.verdict == Verdict.NO_VERDICT
    assert result.refusals
    assert result.sentence.startswith("undetermined by 1 of ")
    assert result.sentence.endswith(" checks: nothing writes to the files")
