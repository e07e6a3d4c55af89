"""The statement beside a manifest: held against the published forms, member by member."""

import hashlib
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement

from draftmill.store.interface import Store
from draftmill.store.manifest import Donor, File, SourceFile, Tool
from draftmill.store.provenance import key_of, statement
from draftmill.store.publish import publish
from draftmill.store.reading import get
from tests.store.samples import COMMIT, RECIPE, publication, source


def test_a_statement_says_what_the_manifest_says(tmp_path: Path) -> None:
    config = SourceFile(path="config.json", size=2, blob_id="ef" * 20)
    made = publication(
        tmp_path,
        big=10,
        source=source(files=(*source().files, config)),
        donor=Donor(
            source=source(repo="Qwen/Qwen3-8B", requested_revision="v2", commit="d" * 40, hub="http://127.0.0.1:1"),
            proof="cd" * 32,
        ),
        parameters={"quant": ["F16"], "trained_for": ["Qwen/Qwen3-8B"]},
        created=datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=2))),
        tools=(Tool(name="draftmill", version="0.1.0"), Tool(name="llama-quantize", version="b1", digest="aa" * 32)),
    ).manifest
    evidence = File(path="proof.json", size=1, sha256="99" * 32, role="evidence")
    manifest = made.model_copy(update={"files": (*made.files, evidence), "job_results": {"convert": "77" * 32}})
    value = json.loads(statement(manifest, b"the manifest's bytes"))
    assert value["_type"] == "https://in-toto.io/Statement/v1"
    assert value["predicateType"] == "https://slsa.dev/provenance/v1"
    weights, sidecar = made.files
    assert value["subject"] == [
        {"name": "manifest.json", "digest": {"sha256": hashlib.sha256(b"the manifest's bytes").hexdigest()}},
        {"name": "PARD-Tiny-F16.gguf", "digest": {"sha256": weights.sha256}},
        {"name": "warp_model.bin", "digest": {"sha256": sidecar.sha256}},
    ]
    build, run = value["predicate"]["buildDefinition"], value["predicate"]["runDetails"]
    assert build["buildType"] == "urn:draftmill:convert_model:v1"
    assert build["externalParameters"] == {
        "entry": "amd/PARD-Tiny",
        "source": "amd/PARD-Tiny",
        "revision": "main",
        "tokenizer_from": {"source": "Qwen/Qwen3-8B", "revision": "v2"},
        "parameters": {"quant": ["F16"], "trained_for": ["Qwen/Qwen3-8B"]},
    }
    assert build["internalParameters"] == {"recipe": RECIPE, "jobKeys": {"convert": "k1"}}
    assert build["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": COMMIT}, "uri": f"pkg:huggingface/amd/PARD-Tiny@{COMMIT}"},
        {"name": "source/model.safetensors", "digest": {"sha256": "ab" * 32}},
        {"name": "source/config.json", "digest": {"gitBlob": "ef" * 20}},
        {
            "name": "tokenizer donor",
            "digest": {"gitCommit": "d" * 40},
            "uri": f"pkg:huggingface/Qwen/Qwen3-8B@{'d' * 40}?repository_url=http%3A%2F%2F127.0.0.1%3A1",
            "downloadLocation": f"http://127.0.0.1:1/Qwen/Qwen3-8B/tree/{'d' * 40}",
        },
        {
            "name": "tokenizer donor/model.safetensors",
            "digest": {"sha256": "ab" * 32},
            "downloadLocation": f"http://127.0.0.1:1/Qwen/Qwen3-8B/resolve/{'d' * 40}/model.safetensors",
        },
        {"name": "draftmill", "uri": "pkg:generic/draftmill@0.1.0", "annotations": {"version": "0.1.0"}},
        {
            "name": "llama-quantize",
            "uri": "pkg:generic/llama-quantize@b1",
            "annotations": {"version": "b1"},
            "digest": {"sha256": "aa" * 32},
        },
    ]
    assert run["builder"] == {"id": "urn:draftmill:mill", "version": {"draftmill": "0.1.0"}}
    assert run["metadata"] == {"finishedOn": "2026-03-01T10:00:00.250000Z"}
    assert run["byproducts"] == [
        {"name": "proof.json", "digest": {"sha256": "99" * 32}},
        {
            "name": "job/convert/result.json",
            "digest": {"sha256": "77" * 32},
            "mediaType": "application/json",
            "annotations": {"jobKey": "k1"},
        },
    ]
    assert_is_of_the_published_forms(value)


def assert_is_of_the_published_forms(value: dict[str, Any]) -> None:
    """By in-toto's own messages, of which an unknown member or a wrong type is an error."""
    predicate = json_format.ParseDict(value["predicate"], Provenance())
    resources = [*predicate.build_definition.resolved_dependencies, *predicate.run_details.byproducts]
    for resource in resources:
        ResourceDescriptor.copy_from_pb(resource).validate()
        assert resource.uri or resource.digest or resource.content
    subjects = [ResourceDescriptor(name=each["name"], digest=each["digest"]).pb for each in value["subject"]]
    Statement(subjects, value["predicateType"], value["predicate"]).validate()


def test_a_folder_has_no_address_and_the_digest_of_its_listing(tmp_path: Path) -> None:
    manifest = publication(tmp_path, source=source(origin="folder", repo=None, commit="e" * 64)).manifest
    build = json.loads(statement(manifest, b""))["predicate"]["buildDefinition"]
    assert build["externalParameters"]["source"] == "folder"
    assert "tokenizer_from" not in build["externalParameters"]
    first = build["resolvedDependencies"][0]
    assert first == {"name": "source", "digest": {"sha256": "e" * 64}}


def test_a_statement_of_another_manifest_is_put_right(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=10)
    key = key_of(sample.manifest)
    store.create(key, b"{}", hashlib.sha256(b"{}").hexdigest())
    published = publish(store, sample.files, sample.manifest)
    assert get(store, key) == statement(published.manifest, get(store, published.manifest.key))
