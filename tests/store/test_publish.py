"""Publishing, against a local folder and SeaweedFS: once, again, raced, killed, and refused."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from draftmill.outcome import InputOutput, Refused
from draftmill.store import provenance
from draftmill.store.interface import Promises, Store
from draftmill.store.local import LocalStore
from draftmill.store.manifest import Donor, Licence, Manifest, read_manifest
from draftmill.store.provenance import statement
from draftmill.store.publish import describe, find, publish
from draftmill.store.reading import get
from draftmill.store.s3 import S3Store
from tests.store.killed import publish_until_killed
from tests.store.samples import COMMIT, FOLDER, RECIPE, TWO_PARTS, Publication, contents_of, publication, source

MANIFEST = f"{FOLDER}/manifest.json"
PROVENANCE = f"{FOLDER}/{provenance.NAME}"


def is_complete(store: Store, expected: Publication) -> bool:
    """Every file, the manifest, and the provenance of this manifest."""
    manifest = get(store, MANIFEST)
    attested = statement(read_manifest(manifest, ""), manifest)
    return contents_of(store) == {**expected.contents(), MANIFEST: manifest, PROVENANCE: attested}


def test_a_publication_is_there_whole_and_found(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job")
    assert find(store, "model", "amd/PARD-Tiny", COMMIT, RECIPE) is None
    published = publish(store, sample.files, sample.manifest)
    assert published.created
    assert published.where == store.where(MANIFEST)
    assert is_complete(store, sample)
    found = find(store, "model", "amd/PARD-Tiny", COMMIT, RECIPE)
    assert found is not None
    assert (found.manifest, found.created) == (sample.manifest, False)


def test_the_same_recipe_again_does_nothing_and_gives_the_first_manifest(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=1000)
    publish(store, sample.files, sample.manifest)
    again = publication(tmp_path / "again", big=1000, created=datetime(2031, 1, 1, tzinfo=UTC))
    published = publish(store, again.files, again.manifest)
    assert not published.created
    assert published.manifest == sample.manifest
    assert is_complete(store, sample)


def test_racing_publishers_of_one_recipe_commit_once(store: Store, tmp_path: Path) -> None:
    samples = [publication(tmp_path / str(number), big=TWO_PARTS) for number in range(3)]
    with ThreadPoolExecutor(len(samples)) as pool:
        ends = list(pool.map(lambda sample: publish(store, sample.files, sample.manifest), samples))
    assert sorted(end.created for end in ends) == [False, False, True]
    assert len({end.manifest.to_bytes() for end in ends}) == 1
    assert is_complete(store, samples[0])


def test_other_bytes_under_the_same_recipe_are_refused(store: Store, tmp_path: Path) -> None:
    first = publication(tmp_path / "first", big=1000)
    publish(store, first.files, first.manifest)
    other = publication(tmp_path / "other", big=1000, seed=1)
    with pytest.raises(Refused) as refused:
        publish(store, other.files, other.manifest)
    [refusal] = refused.value.refusals
    assert (refusal.code, refusal.where) == ("store.bytes_differ", store.where(f"{FOLDER}/PARD-Tiny-F16.gguf"))
    assert is_complete(store, first)


def test_other_bytes_of_an_unfinished_publication_are_refused_too(store: Store, tmp_path: Path) -> None:
    first = publication(tmp_path / "first", big=1000)
    publish(store, first.files, first.manifest)
    store.delete(MANIFEST)
    other = publication(tmp_path / "other", big=1000, seed=1)
    with pytest.raises(Refused) as refused:
        publish(store, other.files, other.manifest)
    assert [r.code for r in refused.value.refusals] == ["store.bytes_differ"]
    left = contents_of(store)
    assert left.pop(PROVENANCE)
    assert left == first.contents()


def test_another_recipe_with_the_same_short_name_is_refused(store: Store, tmp_path: Path) -> None:
    first = publication(tmp_path / "first", big=10)
    publish(store, first.files, first.manifest)
    other = publication(tmp_path / "other", big=10, recipe=RECIPE[:8] + "1" * 56)
    with pytest.raises(Refused) as refused:
        publish(store, other.files, other.manifest)
    assert refused.value.code == "store.recipe_collision"


def test_a_manifest_that_was_changed_by_hand_is_refused(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=10)
    data = sample.manifest.to_bytes().replace(b'"kind"', b'"kinds"')
    store.replace(MANIFEST, data, None)
    with pytest.raises(Refused) as refused:
        publish(store, sample.files, sample.manifest)
    assert refused.value.code == "store.manifest"


@pytest.fixture(params=["local", "s3"])
def reopening(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], tuple[Store, Callable[[], Store]]]:
    """By number: a fresh store, and how a child process opens it for itself."""
    if request.param == "local":
        return lambda number: (LocalStore(tmp_path / f"s{number}"), lambda: LocalStore(tmp_path / f"s{number}"))
    shared: S3Store = request.getfixturevalue("s3_store")

    def fresh(number: int) -> tuple[Store, Callable[[], Store]]:
        store = S3Store(shared.client, shared.bucket, f"{shared.prefix}/k{number}", shared.part_size)
        store.promises = shared.promises
        store.client.close()  # a child must not inherit the connections; the client opens new ones
        return store, lambda: store

    return fresh


def test_killed_at_any_step_nothing_is_half_there_and_the_next_run_finishes(
    reopening: Callable[[int], tuple[Store, Callable[[], Store]]], tmp_path: Path
) -> None:
    sample = publication(tmp_path / "job")
    expected = sample.contents()
    kills = 0
    for step in range(1, 40):
        store, open_it = reopening(step)
        if not publish_until_killed(open_it, sample, step):
            break
        kills += 1
        left = contents_of(store)
        committed = left.pop(MANIFEST, None)
        attested = left.pop(PROVENANCE, None)
        assert committed is None or attested == statement(read_manifest(committed, ""), committed)
        assert left.items() <= expected.items()
        assert committed is None or left == expected
        published = publish(store, sample.files, sample.manifest)
        assert published.created is (committed is None)
        assert is_complete(store, sample)
        if isinstance(store, LocalStore):
            assert list((store.root / ".draftmill" / "tmp").iterdir()) == []
    # A big file in two pieces, a small one, provenance, the manifest: a step before and one after each creation.
    assert kills >= 11


def test_files_and_manifest_have_to_agree(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    sample = publication(tmp_path / "job", big=10)
    (tmp_path / "job" / "warp_model.bin").write_bytes(b"longer than listed")
    files = {**sample.files, "extra.txt": tmp_path / "job" / "warp_model.bin"}
    del files["PARD-Tiny-F16.gguf"]
    with pytest.raises(Refused) as refused:
        publish(store, files, sample.manifest)
    assert {(r.code, r.where) for r in refused.value.refusals} == {
        ("store.files_differ", name) for name in ("extra.txt", "PARD-Tiny-F16.gguf", "warp_model.bin")
    }
    assert list(store.entries("")) == []


def test_a_file_that_changed_after_it_was_described_is_not_published(store: Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=10)
    sample.files["warp_model.bin"].write_bytes(b"WARP")
    with pytest.raises(InputOutput) as error:
        publish(store, sample.files, sample.manifest)
    assert error.value.code == "store.source_differs"
    assert store.head(MANIFEST) is None


def test_without_promised_checksums_every_object_is_read_back(s3_store: S3Store, tmp_path: Path) -> None:
    sample = publication(tmp_path / "job", big=1000)

    class Rotting(S3Store):
        """Its server keeps other bytes than it was sent, and the sha256 that it was told."""

        def create(self, key, body, sha256, progress=lambda *_: None):  # type: ignore[no-untyped-def]
            creation = super().create(key, body, sha256, progress)
            if key.endswith(".gguf"):
                self.client.put_object(**self.place(key), Body=bytes(1000), Metadata={"sha256": sha256})
            return creation

    rotting = Rotting(s3_store.client, s3_store.bucket, s3_store.prefix)
    with pytest.raises(InputOutput) as error:
        publish(rotting, sample.files, sample.manifest)
    assert error.value.code == "store.damaged"
    assert s3_store.head(MANIFEST) is None
    # The control: with checksums promised, nothing looks.
    rotting = Rotting(s3_store.client, s3_store.bucket, f"{s3_store.prefix}/trusted")
    rotting.promises = Promises(checksums=True, metadata=True)
    assert publish(rotting, sample.files, sample.manifest).created


@pytest.mark.parametrize("id", [None, "unknown", "my-own"])
def test_without_a_known_licence_only_a_statement_publishes(tmp_path: Path, id: str | None) -> None:
    store = LocalStore(tmp_path / "store")
    sample = publication(tmp_path / "job", big=10, licence=Licence(id=id))
    with pytest.raises(Refused) as refused:
        publish(store, sample.files, sample.manifest)
    assert [r.code for r in refused.value.refusals] == ["store.licence_missing"]
    assert list(store.entries("")) == []
    stated = Manifest(**{**dict(sample.manifest), "licence": Licence(id=id, statement="ours; see contract 12")})
    assert publish(store, sample.files, stated).created


def test_a_llama_target_or_donor_brings_its_licence(tmp_path: Path) -> None:
    donor = Donor(source=source(repo="meta-llama/Llama-3.2-1B"), proof="0" * 64)
    for change in ({"source": source(base_models=("meta-llama/Llama-3.2-1B",))}, {"donor": donor}):
        sample = publication(tmp_path / "job", big=10, **change)
        with pytest.raises(Refused) as refused:
            publish(LocalStore(tmp_path / "store"), sample.files, sample.manifest)
        assert [refusal.code for refusal in refused.value.refusals] == [
            "store.agreement_missing",
            "store.notice_missing",
            "store.display_missing",
            "store.name_rule",
        ]


def test_describe_gives_size_and_sha256(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    file = describe(tmp_path / "f", "a/f", "evidence")
    assert (file.path, file.size, file.role) == ("a/f", 3, "evidence")
    assert file.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
