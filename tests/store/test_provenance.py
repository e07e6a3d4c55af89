"""The statement beside a manifest: held against the published forms, member by member."""

import hashlib
import json
from pathlib import Path

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
        donor=Donor(source=source(repo="Qwen/Qwen3-8B", commit="d" * 40), proof="cd" * 32),
        tools=(Tool(name="draftmill", version="0.1.0"), Tool(name="llama-quantize", version="b1", digest="aa" * 32)),
    ).manifest
    evidence = File(path="proof.json", size=1, sha256="99" * 32, role="evidence")
    manifest = made.model_copy(update={"files": (*made.files, evidence)})
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
        "parameters": {"quant": ["F16"]},
    }
    assert build["internalParameters"] == {"recipe": RECIPE, "jobKeys": {"convert": "k1"}}
    assert build["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": COMMIT}, "uri": f"pkg:huggingface/amd/PARD-Tiny@{COMMIT}"},
        {"name": "source/model.safetensors", "digest": {"sha256": "ab" * 32}},
        {"name": "source/config.json", "digest": {"gitBlob": "ef" * 20}},
        {
            "name": "tokenizer donor",
            "digest": {"gitCommit": "d" * 40},
            "uri": f"pkg:huggingface/Qwen/Qwen3-8B@{'d' * 40}",
        },
        {"name": "tokenizer donor/model.safetensors", "digest": {"sha256": "ab" * 32}},
        {"name": "draftmill", "annotations": {"version": "0.1.0"}},
        {"name": "llama-quantize", "annotations": {"version": "b1"}, "digest": {"sha256": "aa" * 32}},
    ]
    assert run["builder"] == {"id": "urn:draftmill:mill", "version": {"draftmill": "0.1.0"}}
    assert run["metadata"] == {"invocationId": RECIPE, "finishedOn": manifest.created.isoformat()}
    assert run["byproducts"] == [{"name": "proof.json", "digest": {"sha256": "99" * 32}}]


def test_a_folder_has_no_address_and_the_digest_of_its_listing(tmp_path: Path) -> None:
    manifest = publication(tmp_path, source=source(origin="folder", repo=None, commit="e" * 64)).manifest
    first = json.loads(statement(manifest, b""))["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    assert first == {"name": "source", "digest": {"sha256": "e" * 64}}


def test_a_statement_of_another_manifest_is_put_right(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=10)
    key = key_of(sample.manifest)
    store.create(key, b"{}", hashlib.sha256(b"{}").hexdigest())
    published = publish(store, sample.files, sample.manifest)
    assert get(store, key) == statement(published.manifest, get(store, published.manifest.key))
