import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from draftmill.outcome import Refused
from draftmill.store.manifest import File, Manifest, SourceFile, folder_key, read_manifest, recipe_digest
from tests.store.samples import COMMIT, FOLDER, RECIPE, publication


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return publication(tmp_path, big=10).manifest


def test_a_manifest_reads_back_as_it_was_written(manifest: Manifest) -> None:
    assert read_manifest(manifest.to_bytes(), "here") == manifest
    assert json.loads(manifest.to_bytes())["schema_version"] == 1


def test_the_folder_follows_from_entry_commit_and_recipe(manifest: Manifest) -> None:
    assert manifest.folder == FOLDER
    assert manifest.key == f"{FOLDER}/manifest.json"
    assert folder_key("package", "amd/x", COMMIT, RECIPE) == "packages/amd/x/0123456789ab-feedface"


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"surprise": 1}, "surprise"),
        ({"entry": "no-owner"}, "entry"),
        ({"entry": "../x"}, "entry"),
        ({"recipe": "beef"}, "recipe"),
        ({"files": []}, "files"),
        ({"created": "2026-01-01T00:00:00"}, ""),
        ({"licence": {"id": "mit", "colour": "red"}}, "licence.colour"),
    ],
)
def test_what_is_not_a_manifest_is_refused_by_member(manifest: Manifest, change: dict[str, Any], where: str) -> None:
    data = json.dumps({**json.loads(manifest.to_bytes()), **change}).encode()
    with pytest.raises(Refused) as refused:
        read_manifest(data, "here")
    assert (refused.value.code, refused.value.where) == ("store.manifest", f"here: {where}")


def test_bytes_that_are_not_json_are_refused() -> None:
    with pytest.raises(Refused):
        read_manifest(b"\x00half a mani", "here")


@pytest.mark.parametrize("path", ["manifest.json", "Manifest.json", "../x", "/x", "a/"])
def test_paths_that_clash_or_leave_the_folder_are_refused(manifest: Manifest, path: str) -> None:
    file = File(path=path, size=1, sha256="0" * 64, role="model")
    with pytest.raises((Refused, ValidationError)):
        Manifest(**{**dict(manifest), "files": (file,)})


def test_a_path_listed_twice_is_refused(manifest: Manifest) -> None:
    with pytest.raises(ValidationError, match="twice"):
        Manifest(**{**dict(manifest), "files": manifest.files[:1] * 2})


def test_a_source_file_needs_a_hash() -> None:
    SourceFile(path="a", size=1, blob_id="0" * 40)
    with pytest.raises(ValidationError, match="neither sha256 nor blob_id"):
        SourceFile(path="a", size=1)


def test_a_recipe_digest_is_the_sha256_of_its_canonical_json() -> None:
    # sha256sum of {"donor":null,"jobs":{"convert":"d1"},"parameters":{"quant":["Q8_0"]},"recipe":1,"source":"c0"}
    expected = "df57ce096c30a0e9b635f5e2c23422c877d1f764943f4f168566d74a22250553"
    assert recipe_digest("c0", {"quant": ["Q8_0"]}, {"convert": "d1"}) == expected


def test_every_part_of_a_recipe_changes_its_digest() -> None:
    base = ("c0", {"quant": ["Q8_0"]}, {"convert": "d1"}, "d0")
    digests = {
        recipe_digest(*base),
        recipe_digest("c1", *base[1:]),
        recipe_digest(base[0], {"quant": ["Q4_0"]}, *base[2:]),
        recipe_digest(*base[:2], {"convert": "d2"}, base[3]),
        recipe_digest(*base[:3]),
    }
    assert len(digests) == 5
    assert recipe_digest("c", {"a": 1, "b": 2}, {}) == recipe_digest("c", {"b": 2, "a": 1}, {})


def test_the_time_is_not_part_of_the_folder(manifest: Manifest) -> None:
    later = Manifest(**{**dict(manifest), "created": datetime(2030, 1, 1, tzinfo=UTC)})
    assert later.folder == manifest.folder
