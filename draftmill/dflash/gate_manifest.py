"""MANIFEST.sha256: digests of a package's files, read in each common form and held against the files.

Its form is not published (q4nx.md section 8). Read are the lines of sha256sum ("hex  path", "hex *path") and of BSD's
and openssl's tools ("SHA256 (path) = hex"); which was met is recorded. A manifest cannot hold its own digest, so its
own line is passed over.
"""

import re
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
_GNU = re.compile(r"([0-9a-fA-F]{64})[ \t]+(\*?)(\S.*)")
_BSD = re.compile(r"SHA-?256 ?\((.+)\) ?= ?([0-9a-fA-F]{64})")
IDS = ("manifest.form", "manifest.container", "manifest.digests")


@dataclass(frozen=True)
class Manifest:
    """digests: path -> SHA-256, lower case hex."""

    digests: dict[str, str]
    variants: tuple[Variant, ...]


def parse_manifest(data: bytes) -> tuple[Manifest, Findings]:
    """Every line that could be read, and what is wrong with the others. Codes: gate.manifest_line, manifest_path,
    manifest_twice, manifest_size, manifest_text."""
    findings = Findings()
    digests: dict[str, str] = {}
    met: dict[str, int] = {}
    if len(data) > LIMIT:
        _add(findings, "size", "", len(data), f"at most {LIMIT} bytes", "is too large to be a list of digests")
        return Manifest({}, ()), findings
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _add(findings, "text", "", str(error), "UTF-8", "is no text")
        return Manifest({}, ()), findings
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        where = f":{number}"
        if found := _GNU.fullmatch(line):
            hexadecimal, star, path = found.groups()
            form = "sha256sum, binary mark" if star else "sha256sum"
        elif found := _BSD.fullmatch(line):
            path, hexadecimal = found.groups()
            form = "BSD"
        else:
            _add(findings, "line", where, line[:120], "hex digest, two spaces, path", "has a line of another form")
            continue
        path = path.removeprefix("./")
        met[form] = met.get(form, 0) + 1
        if problem := path_problem(path):
            _add(findings, "path", where, path[:200], "a path inside the package", f"lists a path that {problem}")
        elif digests.setdefault(path, hexadecimal.lower()) != hexadecimal.lower():
            _add(findings, "twice", where, path, "one digest a file", "gives one file two digests")
    digests.pop(MANIFEST, None)
    return Manifest(
        digests, tuple(Variant("manifest lines", form, count) for form, count in sorted(met.items()))
    ), findings


def check_manifest(files: PackageFiles, container: Opened | None, ledger: Ledger) -> tuple[Variant, ...]:
    """Holds the manifest against the files, of which config and container were hashed before. Returns its variants."""
    if files.absent(MANIFEST):
        for check in IDS:
            ledger.skip(check, "the package has no manifest, so nothing here vouches for its bytes")
        return ()
    opened = files.open(MANIFEST)
    data = files.content(opened, LIMIT) if opened else None
    if data is None:
        return ()
    manifest, findings = parse_manifest(data)
    ledger.refuse("manifest.form", *findings.refusals)
    ledger.passes("manifest.form", len(manifest.digests), f"{len(manifest.digests)} files are listed")
    if container:
        if container.name not in manifest.digests:
            ledger.refuse(
                "manifest.container",
                Refusal(
                    "gate.manifest_container",
                    MANIFEST,
                    sorted(manifest.digests)[:20],
                    container.name,
                    "The manifest does not list the container, so it vouches for nothing that is computed with; "
                    "download the package again.",
                ),
            )
        ledger.passes("manifest.container", container.name, f"{container.name} is listed")
    _check_digests(files, manifest, ledger)
    return manifest.variants


def remarks_on_manifest(files: PackageFiles) -> tuple[Remark, ...]:
    """A package without one is not refused, but whoever reads the report should know."""
    if not files.absent(MANIFEST):
        return ()
    sentence = "The package has no manifest, so nothing in it vouches for its bytes: what passes is their form."
    return (Remark("gate.manifest_absent", MANIFEST, sentence),)


def _check_digests(files: PackageFiles, manifest: Manifest, ledger: Ledger) -> None:
    equal, absent, unread = [], [], []
    for name, expected in sorted(manifest.digests.items()):
        if files.absent(name):
            absent.append(name)
            continue
        file = files.open(name)
        measured = files.digest(file) if file else None
        if measured is None:
            unread.append(name)
            continue
        if measured == expected:
            equal.append(name)
            continue
        ledger.refuse(
            "manifest.digests",
            Refusal(
                "gate.digest",
                name,
                measured,
                expected,
                "The file is not the one that the manifest vouches for; download it again.",
            ),
        )
    not_here = f"; not here and not compared: {', '.join(absent[:8])}" if absent else ""
    not_read = f"; not read and not compared: {', '.join(unread[:8])}" if unread else ""
    ledger.passes("manifest.digests", equal, f"{len(equal)} files have their digest{not_here}{not_read}")


def _add(findings: Findings, code: str, where: str, measured: object, expected: str, what: str) -> None:
    findings.add(
        f"gate.manifest_{code}",
        MANIFEST + where,
        measured,
        expected,
        f"The manifest {what}, so what it vouches for is not sure; download the package again.",
    )
