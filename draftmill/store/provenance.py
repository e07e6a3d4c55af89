"""Where a publication comes from, as an in-toto statement with the SLSA provenance predicate, beside its manifest.

A pure function of the manifest as it is stored: whoever holds the manifest can make it again and compare. Nothing is
attested that the manifest does not say. Forms: in-toto Statement v1 (in-toto/attestation, spec/v1/statement.md), SLSA
provenance v1 (slsa.dev/spec/v1.0/provenance), digest sets with gitCommit and gitBlob (spec/v1/digest_set.md), package
addresses of the types huggingface and generic (package-url).
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from draftmill.configuration import PUBLIC_HUB
from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import Manifest, Source, SourceFile, Tool

NAME = "provenance.intoto.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILDER = "urn:draftmill:mill"
_BUILD_TYPES = {"model": "urn:draftmill:convert_model:v1", "package": "urn:draftmill:validate_package:v1"}
_GIT_HEX, _SHA256_HEX = 40, 64


def key_of(manifest: Manifest) -> str:
    return manifest.key_of(NAME)


def statement(manifest: Manifest, data: bytes) -> bytes:
    """The statement as JSON. data: the manifest's bytes as they are stored.

    Subjects: the manifest and every file but the evidence, which is a by-product.
    """
    files = {file.path: {"name": file.path, "digest": {"sha256": file.sha256}} for file in manifest.files}
    evidence = {file.path for file in manifest.files if file.role == "evidence"}
    own = {"name": MANIFEST, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
    value = {
        "_type": STATEMENT_TYPE,
        "subject": [own, *(each for path, each in files.items() if path not in evidence)],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPES[manifest.kind],
                "externalParameters": {
                    "entry": manifest.entry,
                    **_ref(manifest.source),
                    **({"tokenizer_from": _ref(manifest.donor.source)} if manifest.donor else {}),
                    "parameters": manifest.parameters,
                },
                "internalParameters": {"recipe": manifest.recipe, "jobKeys": manifest.job_keys},
                "resolvedDependencies": _dependencies(manifest),
            },
            "runDetails": {
                "builder": {
                    "id": BUILDER,
                    "version": {tool.name: tool.version for tool in manifest.tools if tool.name == "draftmill"},
                },
                # No invocationId: two invocations of one recipe end with one manifest, which names neither.
                "metadata": {"finishedOn": _timestamp(manifest.created)},
                "byproducts": _byproducts(manifest, files, evidence),
            },
        },
    }
    return (json.dumps(value, indent=1, ensure_ascii=True) + "\n").encode()


def _ref(source: Source) -> dict[str, str]:
    """What was asked for, before it was pinned."""
    return {"source": source.repo or source.origin, "revision": source.requested_revision}


def _timestamp(when: datetime) -> str:
    """RFC 3339 in UTC, with the Z that in-toto's Timestamp has."""
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _dependencies(manifest: Manifest) -> list[dict[str, Any]]:
    found = _of_source(manifest.source, "source")
    if manifest.donor:
        found += _of_source(manifest.donor.source, "tokenizer donor")
    return found + [_of_tool(tool) for tool in manifest.tools]


def _of_tool(tool: Tool) -> dict[str, Any]:
    """Of a library there is its version alone, and an address that names both."""
    digest = (tool.digest or "").removeprefix("sha256:")
    return {
        "name": tool.name,
        "uri": f"pkg:generic/{quote(tool.name, safe='')}@{quote(tool.version, safe='')}",
        "annotations": {"version": tool.version},
        **({"digest": {"sha256": digest}} if len(digest) == _SHA256_HEX else {}),
    }


def _byproducts(manifest: Manifest, files: dict[str, Any], evidence: set[str]) -> list[dict[str, Any]]:
    """The evidence, which is published; and what each job said, which stays with the mill that ran it."""
    results = [
        {
            "name": f"job/{title}/result.json",
            "digest": {"sha256": sha256},
            "mediaType": "application/json",
            **({"annotations": {"jobKey": manifest.job_keys[title]}} if title in manifest.job_keys else {}),
        }
        for title, sha256 in sorted(manifest.job_results.items())
    ]
    return [*(files[path] for path in sorted(evidence)), *results]


def _of_source(source: Source, role: str) -> list[dict[str, Any]]:
    """The repository at its commit, then each file that was read from it."""
    kind = "gitCommit" if len(source.commit) == _GIT_HEX else "sha256"
    whole: dict[str, Any] = {"name": role, "digest": {kind: source.commit}}
    if source.repo:
        other = source.hub and source.hub != PUBLIC_HUB
        at = f"?repository_url={quote(source.hub or '', safe='')}" if other else ""
        whole["uri"] = f"pkg:huggingface/{source.repo}@{source.commit}{at}"
    if source.hub:
        whole["downloadLocation"] = f"{source.hub}/{source.repo}/tree/{source.commit}"
    return [whole, *(_of_file(source, role, file) for file in source.files)]


def _of_file(source: Source, role: str, file: SourceFile) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": f"{role}/{file.path}",
        "digest": {"sha256": file.sha256} if file.sha256 else {"gitBlob": file.blob_id},
    }
    if source.hub:
        found["downloadLocation"] = f"{source.hub}/{source.repo}/resolve/{source.commit}/{quote(file.path)}"
    return found
