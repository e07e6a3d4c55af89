"""Where a publication comes from, as an in-toto statement with the SLSA provenance predicate, beside its manifest.

A pure function of the manifest as it is stored: whoever holds the manifest can make it again and compare. Nothing is
attested that the manifest does not say. Forms: in-toto Statement v1 (in-toto/attestation, spec/v1/statement.md), SLSA
provenance v1 (slsa.dev/spec/v1.0/provenance), digest sets with gitCommit and gitBlob (spec/v1/digest_set.md), package
addresses of the type huggingface (package-url).
"""

import hashlib
import json
from typing import Any

from draftmill.store.manifest import NAME as MANIFEST
from draftmill.store.manifest import Manifest, Source

NAME = "provenance.intoto.json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
BUILDER = "urn:draftmill:mill"
_BUILD_TYPES = {"model": "urn:draftmill:convert_model:v1", "package": "urn:draftmill:validate_package:v1"}
_GIT_HEX = 40


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
                    "source": manifest.source.repo or manifest.source.origin,
                    "revision": manifest.source.requested_revision,
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
                "metadata": {"invocationId": manifest.recipe, "finishedOn": manifest.created.isoformat()},
                "byproducts": [files[path] for path in sorted(evidence)],
            },
        },
    }
    return (json.dumps(value, indent=1, ensure_ascii=True) + "\n").encode()


def _dependencies(manifest: Manifest) -> list[dict[str, Any]]:
    found = _of_source(manifest.source, "source")
    if manifest.donor:
        found += _of_source(manifest.donor.source, "tokenizer donor")
    for tool in manifest.tools:
        digest = {"digest": {"sha256": tool.digest}} if tool.digest and len(tool.digest) == 64 else {}
        found.append({"name": tool.name, "annotations": {"version": tool.version}, **digest})
    return found


def _of_source(source: Source, role: str) -> list[dict[str, Any]]:
    """The repository at its commit, then each file that was read from it."""
    kind = "gitCommit" if len(source.commit) == _GIT_HEX else "sha256"
    whole: dict[str, Any] = {"name": role, "digest": {kind: source.commit}}
    if source.repo:
        whole["uri"] = f"pkg:huggingface/{source.repo}@{source.commit}"
    files = [
        {
            "name": f"{role}/{file.path}",
            "digest": {"sha256": file.sha256} if file.sha256 else {"gitBlob": file.blob_id},
        }
        for file in source.files
    ]
    return [whole, *files]
