"""MANIFEST.sha256 in every common form, and lines that are none of them."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from draftmill.dflash.gate import gate
from draftmill.dflash.gate_manifest import parse_manifest
from draftmill.dflash.gate_result import Outcome, Verdict
from tests.support.dflash_packages import tiny

A, B = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifest") / "package"
    tiny(folder, 1)
    return folder


FORMS: dict[str, Callable[[str, str], str]] = {
    "two spaces": lambda digest, path: f"{digest}  {path}\n",
    "binary mark": lambda digest, path: f"{digest} *{path}\n",
    "one space": lambda digest, path: f"{digest} {path}\n",
    "a tab": lambda digest, path: f"{digest}\t{path}\n",
    "upper case": lambda digest, path: f"{digest.upper()}  {path}\n",
    "dot slash": lambda digest, path: f"{digest}  ./{path}\n",
    "BSD": lambda digest, path: f"SHA256 ({path}) = {digest}\n",
    "openssl": lambda digest, path: f"SHA256({path})= {digest}\n",
    "lines of Windows": lambda digest, path: f"{digest}  {path}\r\n",
    "comments and blanks": lambda digest, path: f"# {path}\n\n{digest}  {path}\n",
    "byte order mark": lambda digest, path: f"\ufeff{digest}  {path}\n" if path == "config.json" else "",
    "its own line": lambda digest, path: f"{digest}  {path}\n{A}  MANIFEST.sha256\n",
}


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
