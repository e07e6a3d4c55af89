"""Whether a package's files are those that its own list of digests vouches for; before what is read of them counts.

The gate says more, of every list and file; this is for whoever reads a package without it.
"""

from pathlib import Path

from draftmill.dflash.gate_manifest import LIMIT, parse_manifest
from draftmill.dflash.package import MANIFEST
from draftmill.digest import sha256_file
from draftmill.intake.findings import Findings


def check_vouched(folder: Path) -> None:
    """Raises Refused dflash.not_vouched for every file of MANIFEST.sha256 that is another; OSError. Nothing where there
    is no list: what its lines have to be, and what it has to name, is the gate's to say."""
    listed = folder / MANIFEST
    if not listed.is_file():
        return
    with listed.open("rb") as file:
        manifest, _ = parse_manifest(file.read(LIMIT + 1))
    findings = Findings()
    for name, digest in manifest.digests.items():
        path = folder / name
        if path.is_file() and (measured := sha256_file(path)) != digest:
            findings.add(
                "dflash.not_vouched",
                name,
                measured,
                digest,
                f"The file is not the one that {MANIFEST} vouches for: it was changed or damaged after it was listed. "
                "Fetch the package again; `draftmill validate` says what else is wrong.",
            )
    findings.raise_if_any()
