"""Manifests: digests of a package's files, read in each common form and held against the files.

MANIFEST.sha256's form is not published (q4nx.md section 8). Read are the lines of sha256sum ("hex  path", "hex *path"),
of BSD's `sha256 -r` ("hex path"), and of BSD's and openssl's tools ("SHA256 (path) = hex"), with the names that
`sha256sum --check` takes from them; which was met is recorded. Whatever else in the folder is named like a list of
digests (SHA256SUMS, model.q4nx.sha256) is held against the files too.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from draftmill.dflash.gate_files import Opened, PackageFiles
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.inventory import Variant
from draftmill.dflash.package import MANIFEST
from draftmill.dflash.remark import Remark
from draftmill.hub.paths import path_problem
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal

LIMIT = 1 << 20
_DIGEST = "([0-9a-fA-F]{64})"
_GNU = re.compile(rf"[ \t]*{_DIGEST} ([ *])(.+)")
_REVERSED = re.compile(rf"[ \t]*{_DIGEST}[ \t]([^ \t*].*)")
_BSD = re.compile(rf"[ \t]*SHA(?:2?-)?256 ?\((.+)\) ?= ?{_DIGEST}")
_NAMED_LIKE = re.compile(r"manifest.*|checksums?(\.txt)?|.*sha-?256(sums?)?(\.txt)?", re.IGNORECASE)
IDS = ("manifest.form", "manifest.container", "manifest.digests")
_EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
ONE_SPACE = "sha256sum, one space"


@dataclass(frozen=True)
class Manifest:
    """digests: path -> SHA-256, lower case hex. variants: forms of lines."""

    name: str
    digests: dict[str, str]
    variants: tuple[Variant, ...] = ()


def parse_manifest(data: bytes, name: str = MANIFEST) -> tuple[Manifest, Findings]:
    """Every line that could be read, and what is wrong with the others. Codes: gate.manifest_line, manifest_path,
    manifest_twice, manifest_itself, manifest_mixed, manifest_size, manifest_text."""
    findings = Findings()
    digests: dict[str, str] = {}
    met: dict[str, int] = {}
    if len(data) > LIMIT:
        _add(findings, "size", name, len(data), f"at most {LIMIT} bytes", "is too large to be a list of digests")
        return Manifest(name, {}), findings
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _add(findings, "text", name, str(error), "UTF-8", "is no text")
        return Manifest(name, {}), findings
    if re.fullmatch(_DIGEST, text.strip()) and name != MANIFEST and (of := name.rpartition(".")[0]):
        return Manifest(name, {of: text.strip().lower()}, (Variant("manifest lines", "a digest alone", 1),)), findings
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f"{name}:{number}"
        if found := _GNU.fullmatch(line):
            hexadecimal, mark, path = found.groups()
            form = "sha256sum, binary mark" if mark == "*" else "sha256sum"
        elif found := _REVERSED.fullmatch(line):
            hexadecimal, path = found.groups()
            form = ONE_SPACE
        elif found := _BSD.fullmatch(line):
            path, hexadecimal = found.groups()
            form = "BSD"
        else:
            _add(findings, "line", where, line[:120], "hex digest, two spaces, path", "has a line of another form")
            continue
        path, hexadecimal = path.removeprefix("./"), hexadecimal.lower()
        met[form] = met.get(form, 0) + 1
        if problem := path_problem(path):
            _add(findings, "path", where, path[:200], "a path inside the package", f"lists a path that {problem}")
        elif path == name:
            empty = ", here that of a file that is still empty" if hexadecimal == _EMPTY else ""
            _add(findings, "itself", where, hexadecimal, "no line for itself",
                 f"gives itself a digest{empty}, which no list can hold")  # fmt: skip
        elif digests.setdefault(path, hexadecimal) != hexadecimal:
            _add(findings, "twice", where, path, "one digest a file", "gives one file two digests")
    if ONE_SPACE in met and met.keys() & {"sha256sum", "sha256sum, binary mark"}:
        _add(findings, "mixed", name, sorted(met), "one form", "mixes one space and two before its paths, and "
             "`sha256sum --check` reads no such list whole")  # fmt: skip
    return Manifest(
        name, digests, tuple(Variant("manifest lines", form, count) for form, count in sorted(met.items()))
    ), findings


def read_manifests(files: PackageFiles, ledger: Ledger) -> tuple[Manifest, ...]:
    """MANIFEST.sha256 and whatever else is named like a list of digests and is one; their forms go into the ledger."""
    try:
        others = sorted(
            entry.name for entry in os.scandir(files.folder) if _NAMED_LIKE.fullmatch(entry.name) and not entry.is_dir()
        )
    except OSError as error:
        files.unreadable(files.folder.name, error)
        others = []
    found = []
    for name in dict.fromkeys([MANIFEST, *others]):
        if files.absent(name) or not (opened := files.open(name)) or (data := files.content(opened, LIMIT)) is None:
            continue
        manifest, findings = parse_manifest(data, name)
        if name == MANIFEST or manifest.digests:
            ledger.refuse("manifest.form", *findings.refusals)
            found.append(manifest)
    return tuple(found)


def check_manifests(
    files: PackageFiles,
    manifests: tuple[Manifest, ...],
    container: Opened | None,
    left_aside: Collection[str],
    ledger: Ledger,
) -> None:
    """Holds them against the files. left_aside: files, and folders with a slash at the end, that the package has at its
    source and that were not downloaded."""
    if not manifests:
        if files.absent(MANIFEST):
            for check in IDS:
                ledger.skip(check, "the package has no manifest, so nothing here vouches for its bytes")
        ledger.stop_unsaid(IDS, f"{MANIFEST} cannot be read")
        return
    listed = {path for manifest in manifests for path in manifest.digests}
    named = ", ".join(manifest.name for manifest in manifests)
    ledger.passes("manifest.form", len(listed), f"{len(listed)} files are listed in {named}", named)
    if container:
        if container.name not in listed:
            ledger.refuse(
                "manifest.container",
                Refusal(
                    "gate.manifest_container",
                    manifests[0].name,
                    sorted(listed)[:20],
                    container.name,
                    "The manifest does not list the container, so it vouches for nothing that is computed with; "
                    "download the package again.",
                ),
            )
        ledger.passes("manifest.container", container.name, f"{container.name} is listed")
    equal, aside, unread = set[str](), set[str](), set[str]()
    for manifest in manifests:
        for path, digest in sorted(manifest.digests.items()):
            absent = path not in files.opened and files.absent(path)
            if absent and _covers(left_aside, path):
                aside.add(path)
                continue
            if absent:
                ledger.refuse("manifest.digests", _not_here(manifest.name, path, digest))
                continue
            file = files.open(path)
            measured = files.digest(file) if file else None
            if measured is None:
                unread.add(path)
            elif measured == digest:
                equal.add(path)
            else:
                ledger.refuse("manifest.digests", _differs(manifest.name, path, measured, digest))
    if unread:
        ledger.stop("manifest.digests", f"not all that is listed was read: {', '.join(sorted(unread)[:8])}")
    more = f"; listed, not downloaded and not compared: {', '.join(sorted(aside)[:8])}" if aside else ""
    ledger.passes("manifest.digests", sorted(equal), f"{len(equal)} files have their digest{more}", named)


def remarks_on_manifests(files: PackageFiles, manifests: tuple[Manifest, ...]) -> tuple[Remark, ...]:
    """A package without one is not refused, but whoever reads the report should know."""
    read = {manifest.name for manifest in manifests}
    sentence = (
        "It is named like a list of digests, and none of its lines is a SHA-256 of a file: nothing of it is proven."
    )
    found = [
        Remark("gate.manifest_unread", name, sentence)
        for name in sorted(files.opened)
        if _NAMED_LIKE.fullmatch(name) and name not in read
    ]
    if not manifests and files.absent(MANIFEST):
        sentence = "The package has no manifest, so nothing in it vouches for its bytes: what passes is their form."
        found.append(Remark("gate.manifest_absent", MANIFEST, sentence))
    return tuple(found)


def _covers(names: Collection[str], path: str) -> bool:
    return path in names or any(path.startswith(name) for name in names if name.endswith("/"))


def _not_here(manifest: str, path: str, digest: str) -> Refusal:
    shown = path if path == path.strip() else repr(path)
    return Refusal(
        "gate.listed_file_absent",
        shown,
        "no such file",
        digest,
        f"{manifest} lists {shown} and it is not here, so the package is not whole; download it again.",
    )


def _differs(manifest: str, path: str, measured: str, digest: str) -> Refusal:
    sentence = f"The file is not the one that {manifest} vouches for; download it again."
    return Refusal("gate.digest", path, measured, digest, sentence)


def _add(findings: Findings, code: str, where: str, measured: object, expected: str, what: str) -> None:
    findings.add(
        f"gate.manifest_{code}",
        where,
        measured,
        expected,
        f"The manifest {what}, so what it vouches for is not sure; download the package again.",
    )
