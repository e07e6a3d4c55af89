"""MANIFEST.sha256 in every common form, and lines that are none of them."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_files import PackageFiles
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_manifest import check_manifests, parse_manifest, read_manifests
from draftmill.dflash.gate_result import Outcome, Verdict
from tests.support.dflash_packages import tiny

A, B = "a" * 64, "b" * 64
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifest") / "package"
    tiny(folder, 1)
    return folder


FORMS: dict[str, Callable[[str, str], str]] = {
    "two spaces": lambda digest, path: f"{digest}  {path}\n",
    "binary mark": lambda digest, path: f"{digest} *{path}\n",
    "indented": lambda digest, path: f" \t{digest}  {path}\n",
    "one space": lambda digest, path: f"{digest} {path}\n",
    "a tab": lambda digest, path: f"{digest}\t{path}\n",
    "upper case": lambda digest, path: f"{digest.upper()}  {path}\n",
    "dot slash": lambda digest, path: f"{digest}  ./{path}\n",
    "BSD": lambda digest, path: f"SHA256 ({path}) = {digest}\n",
    "openssl": lambda digest, path: f"SHA256({path})= {digest}\n",
    "openssl 3": lambda digest, path: f"SHA2-256({path})= {digest}\n",
    "lines of Windows": lambda digest, path: f"{digest}  {path}\r\n",
    "comments and blanks": lambda digest, path: f"# {path}\n\n{digest}  {path}\n",
    "byte order mark": lambda digest, path: f"\ufeff{digest}  {path}\n" if path == "config.json" else "",
}
BEYOND_SHA256SUM = ("openssl 3", "lines of Windows", "byte order mark")
"""Forms that `sha256sum --check` of some or all versions does not read."""


def by_sha256sum(package: Path, name: str = "MANIFEST.sha256") -> int:
    """How `sha256sum --check --strict` ends."""
    command = ["sha256sum", "--check", "--strict", "--status", name]
    return subprocess.run(command, cwd=package, check=False, stderr=subprocess.DEVNULL).returncode


@pytest.mark.parametrize("form", FORMS)
def test_a_manifest_in_a_common_form_is_read(form: str, package: Path) -> None:
    names = ["config.json", "model.q4nx"]
    digests = {name: hashlib.sha256((package / name).read_bytes()).hexdigest() for name in names}
    text = "".join(FORMS[form](digests[name], name) for name in names)
    text += f"{digests['model.q4nx']}  model.q4nx\n" if form == "byte order mark" else ""
    (package / "MANIFEST.sha256").write_text(text, newline="")
    result = gate(package)
    assert result.verdict == Verdict.PASS, result.refusals
    assert next(check for check in result.checks if check.id == "manifest.digests").measured == names
    assert form in BEYOND_SHA256SUM or by_sha256sum(package) == 0


REFUSED: dict[str, tuple[Callable[[str, str], str], str, str]] = {
    "a listed file that is absent": (
        lambda config, model: f"{config}  config.json\n{model}  model.q4nx\n{A}  README.md\n",
        "gate.listed_file_absent",
        "README.md",
    ),
    "an absent file in a folder": (
        lambda config, model: f"{config}  config.json\n{model}  model.q4nx\n{A}  config.json/x\n",
        "gate.listed_file_absent",
        "config.json/x",
    ),
    "its own wrong digest": (
        lambda config, model: f"{config}  config.json\n{model}  model.q4nx\n{A}  MANIFEST.sha256\n",
        "gate.manifest_itself",
        "MANIFEST.sha256:3",
    ),
    "its own digest while it was empty": (
        lambda config, model: f"{EMPTY}  ./MANIFEST.sha256\n{config}  config.json\n{model}  model.q4nx\n",
        "gate.manifest_itself",
        "MANIFEST.sha256:1",
    ),
    "a name that begins with a space": (
        lambda config, model: f"{config}   config.json\n{model}  model.q4nx\n",
        "gate.listed_file_absent",
        "' config.json'",
    ),
    "a name that ends with a space": (
        lambda config, model: f"{config}  config.json \n{model}  model.q4nx\n",
        "gate.listed_file_absent",
        "'config.json '",
    ),
    "a name that begins with a star": (
        lambda config, model: f"{config}  *config.json\n{model}  model.q4nx\n",
        "gate.listed_file_absent",
        "*config.json",
    ),
    "a name in other letters": (
        lambda config, model: f"{config}  Config.json\n{model}  model.q4nx\n",
        "gate.listed_file_absent",
        "Config.json",
    ),
    "one space and two": (
        lambda config, model: f"{config}  config.json\n{model} model.q4nx\n",
        "gate.manifest_mixed",
        "MANIFEST.sha256",
    ),
    "two spaces after one": (
        lambda config, model: f"{config} config.json\n{model}  model.q4nx\n",
        "gate.manifest_mixed",
        "MANIFEST.sha256",
    ),
    "a wrong digest": (
        lambda config, model: f"{A}  config.json\n{model}  model.q4nx\n",
        "gate.digest",
        "config.json",
    ),
    "no digest": (
        lambda config, model: f"{config}  config.json\n{model}  model.q4nx\nfoo\n",
        "gate.manifest_line",
        "MANIFEST.sha256:3",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_sha256sum_does_not_confirm_is_refused_by_name(what: str, package: Path) -> None:
    text, code, where = REFUSED[what]
    (package / "MANIFEST.sha256").write_text(
        text(*(hashlib.sha256((package / name).read_bytes()).hexdigest() for name in ("config.json", "model.q4nx")))
    )
    result = gate(package)
    assert [(refusal.code, refusal.where) for refusal in result.refusals] == [(code, where)]
    assert by_sha256sum(package) != 0


NAMES = ["a", "b c", " d", "*e", "absent", "./a", "MANIFEST.sha256"]
LINES = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["", "", "", " ", "\\", "# "]),
    st.sampled_from([hashlib.sha256(b"x").hexdigest()] * 4 + [A, "A" * 64, A[:63], ""]),
    st.sampled_from(["  ", "  ", " *", " ", "\t", "   ", " \t", ""]),
    st.sampled_from(NAMES[:2] * 4 + NAMES),
    st.sampled_from(["", "", "", " ", "\r"]),
) | st.builds("SHA256 ({}) = {}".format, st.sampled_from(NAMES), st.sampled_from([hashlib.sha256(b"x").hexdigest(), A]))


@settings(max_examples=250, deadline=None)
@given(lines=st.lists(LINES, min_size=1, max_size=3), end=st.sampled_from(["\n", ""]))
def test_what_passes_of_any_lines_sha256sum_confirms(folder_of_names: Path, lines: list[str], end: str) -> None:
    """Against an independent reader of the same bytes; the forms that go beyond it are left out."""
    text = "\n".join(lines) + end
    (folder_of_names / "MANIFEST.sha256").write_text(text, newline="")
    ledger = Ledger()
    files = PackageFiles(folder_of_names, ledger)
    manifests = read_manifests(files, ledger)
    check_manifests(files, manifests, None, (), ledger)
    files.settle()
    files.close()
    passes = not ledger.spoke
    event(f"passes: {passes}")
    if passes and any(manifest.digests for manifest in manifests):
        assert by_sha256sum(folder_of_names) == 0 or "\r" in text, text


@pytest.fixture(scope="module")
def folder_of_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for name in ("a", "b c", " d", "*e"):
        (folder / name).write_text("x")
    return folder


SECOND = ["SHA256SUMS", "sha256sums.txt", "manifest.sha256", "MANIFEST", "MANIFEST.sha256.txt", "checksums.txt",
          "draft.SHA256"]  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_a_second_list_is_held_against_the_files_too(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    right = (folder / "MANIFEST.sha256").read_text()
    (folder / name).write_text(right)
    assert gate(folder).verdict == Verdict.PASS
    (folder / name).write_text(f"{A}  model.q4nx\n")
    (refusal,) = gate(folder).refusals
    assert (refusal.code, refusal.where) == ("gate.digest", "model.q4nx")
    assert f"not the one that {name} vouches for" in refusal.sentence
    assert by_sha256sum(folder, name) != 0


def test_a_digest_alone_beside_the_container_is_its_digest(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1, manifest=False)
    (folder / "model.q4nx.sha256").write_text(hashlib.sha256((folder / "model.q4nx").read_bytes()).hexdigest() + "\n")
    result = gate(folder)
    assert result.verdict == Verdict.PASS
    assert next(check for check in result.checks if check.id == "manifest.digests").measured == ["model.q4nx"]
    (folder / "model.q4nx.sha256").write_text(A)
    assert [refusal.code for refusal in gate(folder).refusals] == ["gate.digest"]


@pytest.mark.parametrize("name", ["MANIFEST.json", "manifest.sha256.asc"])
def test_what_is_named_like_a_list_and_is_none_is_no_manifest(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    (folder / name).write_text('{"files": []}')
    result = gate(folder)
    assert result.verdict == Verdict.PASS
    remarks = {remark.where: remark.code for remark in result.remarks}
    assert remarks[name] == "gate.manifest_unread"


def test_a_folder_that_was_left_aside_covers_what_is_listed_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    with (folder / "MANIFEST.sha256").open("a") as file:
        file.write(f"{A}  images/plot.png\n")
    assert gate(folder, left_aside=["images/"]).verdict == Verdict.PASS
    assert gate(folder, left_aside=["images"]).verdict == Verdict.REFUSED


def test_a_listed_file_that_was_left_aside_when_it_was_downloaded_is_said_and_not_refused(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    tiny(folder, 1)
    with (folder / "MANIFEST.sha256").open("a") as file:
        file.write(f"{A}  banner.png\n")
    assert gate(folder).verdict == Verdict.REFUSED
    result = gate(folder, left_aside=["banner.png"])
    assert result.verdict == Verdict.PASS
    evidence = next(check.evidence for check in result.checks if check.id == "manifest.digests")
    assert "listed, not downloaded and not compared: banner.png" in evidence
    assert gate(folder, left_aside=["banner"]).verdict == Verdict.REFUSED
    (folder / "banner.png").touch()
    assert gate(folder, left_aside=["banner.png"]).verdict == Verdict.REFUSED


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"{A[:63]}  config.json", "gate.manifest_line"),
        (A, "gate.manifest_line"),
        (f"\\{A}  a\\nb", "gate.manifest_line"),
        (f"{A}  ../outside", "gate.manifest_path"),
        (f"{A}  /etc/passwd", "gate.manifest_path"),
        (f"{A}  a\\b", "gate.manifest_path"),
        (f"{A}  x\n{B}  x", "gate.manifest_twice"),
        ("\x00", "gate.manifest_line"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, code: str) -> None:
    _, findings = parse_manifest(f"{A}  good\n{line}\n".encode())
    (refusal,) = findings.refusals
    assert refusal.code == code
    assert refusal.where.startswith("MANIFEST.sha256:")


@pytest.mark.parametrize(("data", "code"), [(b"\xff\xfe", "manifest_text"), (b"#" * (1 << 21), "manifest_size")])
def test_what_is_no_list_is_named(data: bytes, code: str) -> None:
    _, findings = parse_manifest(data)
    assert [refusal.code for refusal in findings.refusals] == [f"gate.{code}"]


def test_a_million_bad_lines_stay_a_readable_result() -> None:
    _, findings = parse_manifest(b"x\n" * 300_000)
    assert len(findings.refusals) == 51


def test_nothing_outside_is_read_for_a_path_that_leaves(package: Path) -> None:
    (package.parent / "outside").write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    container = hashlib.sha256((package / "model.q4nx").read_bytes()).hexdigest()
    (package / "MANIFEST.sha256").write_text(f"{container}  model.q4nx\n{digest}  ../outside\n")
    result = gate(package)
    assert [check.id for check in result.of(Outcome.REFUSED)] == ["manifest.form"]
    assert {file.path for file in result.files} == {"config.json", "model.q4nx", "MANIFEST.sha256"}


def test_a_package_without_a_manifest_passes_with_a_remark(package: Path, tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    assert "gate.manifest_absent" not in {remark.code for remark in gate(tmp_path / "p").remarks}
    (tmp_path / "p" / "MANIFEST.sha256").unlink()
    result = gate(tmp_path / "p")
    assert result.verdict == "pass"
    (remark,) = [remark for remark in result.as_json()["remarks"] if remark["where"] == "MANIFEST.sha256"]
    assert "no manifest, so nothing in it vouches for its bytes" in remark["sentence"]
