"""Downloads that go well, resumed ones, and the folder, space and mirror around them."""

import errno
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftmill.hub.download import MARGIN, Received, download
from draftmill.hub.listing import ListedFile, Listing
from draftmill.hub.local import LocalFiles
from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Folder, Hub, Mirror, Source, choose_source
from draftmill.hub.transfer import Tally, Together, Transfer
from draftmill.outcome import BadConfiguration, InputOutput, Refused
from draftmill.progress import silent
from tests.support.hub_server import misbehaving_hub, write_mirror

REPO = Ref(repo="acme/tiny")
SIZE = 3_000_000
WEIGHTS = "model.safetensors"
ABC_SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
ABC_BLOB = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f"  # printf abc | git hash-object --stdin


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mirror(tmp_path_factory.mktemp("mirror"), weights=SIZE)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def listing_of(*files: ListedFile) -> Listing:
    return Listing(repo="acme/tiny", requested_revision="main", commit="0" * 40, source="mirror", files=files)


def test_a_hub_and_a_mirror_give_the_same_bytes(mirror: Path, tmp_path: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        source: Source = Hub(hub.endpoint)
        result = download(resolve(REPO, source, "model"), source, tmp_path / "a")
        listing = resolve(REPO, source, "model")
        assert result == Received(received=listing.size, kept=0)
        assert all(f"/resolve/{listing.commit}/" in asked.path for asked in hub.asked_for(WEIGHTS))
    download(resolve(REPO, Mirror(mirror), "model"), Mirror(mirror), tmp_path / "b")
    folder = mirror / "acme/tiny"
    download(resolve(Ref(folder=folder), Folder(folder), "model"), Folder(folder), tmp_path / "c")
    assert content(tmp_path / "a") == content(tmp_path / "b") == content(tmp_path / "c") == content(folder)


def test_progress_ends_at_the_whole(mirror: Path, out: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    listing = resolve(REPO, Mirror(mirror), "model")
    download(listing, Mirror(mirror), out, progress=lambda *event: seen.append(event))
    assert seen[-1] == ("download", listing.size, listing.size)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@pytest.mark.parametrize(
    ("digest", "kind"), [({"sha256": ABC_SHA256}, "sha256"), ({"blob_id": ABC_BLOB}, "git blob id")]
)
def test_each_kind_of_digest_is_compared(tmp_path: Path, out: Path, digest: dict[str, str], kind: str) -> None:
    folder = tmp_path / "acme/tiny"
    folder.mkdir(parents=True)
    file = ListedFile(path="config.json", size=3, **digest)
    (folder / "config.json").write_text("abc")
    download(listing_of(file), Mirror(tmp_path), out)
    assert content(out) == {"config.json": b"abc"}
    (folder / "config.json").write_text("abd")
    with pytest.raises(Refused) as refused:
        download(listing_of(file), Mirror(tmp_path), out.with_name("again"))
    assert (refused.value.code, refused.value.where) == ("hub.digest", "config.json")
    assert kind in str(refused.value)
    assert content(out.with_name("again")) == {}


def test_the_blob_id_of_a_large_file_is_that_of_its_pointer_and_is_not_compared(tmp_path: Path, out: Path) -> None:
    (tmp_path / "acme/tiny").mkdir(parents=True)
    (tmp_path / "acme/tiny/config.json").write_text("abc")
    file = ListedFile(path="config.json", size=3, sha256=ABC_SHA256, blob_id="1" * 40)
    download(listing_of(file), Mirror(tmp_path), out)
    assert content(out) == {"config.json": b"abc"}


def test_an_empty_file_arrives(tmp_path: Path, out: Path) -> None:
    (tmp_path / "acme/tiny").mkdir(parents=True)
    (tmp_path / "acme/tiny/LICENSE").write_bytes(b"")
    file = ListedFile(path="LICENSE", size=0, blob_id="e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")
    download(listing_of(file), Mirror(tmp_path), out)
    assert content(out) == {"LICENSE": b""}


def test_a_mirror_that_was_damaged_after_it_was_listed_is_refused(tmp_path: Path, out: Path) -> None:
    root = write_mirror(tmp_path / "m", weights=1000)
    listing = resolve(REPO, Mirror(root), "model")
    weights = root / "acme/tiny" / WEIGHTS
    damaged = bytearray(weights.read_bytes())
    damaged[500] ^= 1
    weights.write_bytes(damaged)
    with pytest.raises(Refused) as refused:
        download(listing, Mirror(root), out)
    assert (refused.value.code, refused.value.where) == ("hub.digest", WEIGHTS)
    assert refused.value.refusals[0].measured == hashlib.sha256(damaged).hexdigest()
    assert WEIGHTS not in content(out)
    assert WEIGHTS + ".partial" not in content(out)


def test_what_is_there_and_right_is_not_fetched_again(mirror: Path, out: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        source = Hub(hub.endpoint)
        listing = resolve(REPO, source, "model")
        download(listing, source, out)
        hub.requests.clear()
        assert download(listing, source, out) == Received(received=0, kept=listing.size)
        assert hub.requests == []


def test_a_finished_file_that_was_altered_is_fetched_again(mirror: Path, out: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        source = Hub(hub.endpoint)
        listing = resolve(REPO, source, "model")
        download(listing, source, out)
        (out / WEIGHTS).write_bytes(b"x" * SIZE)
        assert download(listing, source, out).received == SIZE
    assert content(out) == content(mirror / "acme/tiny")


@pytest.mark.parametrize("kept", [1, 1_234_567, SIZE - 1])
def test_a_partial_file_is_continued_from_where_it_ends(mirror: Path, out: Path, kept: int) -> None:
    whole = (mirror / "acme/tiny" / WEIGHTS).read_bytes()
    (out / f"{WEIGHTS}.partial").write_bytes(whole[:kept])
    with misbehaving_hub(mirror) as hub:
        source = Hub(hub.endpoint)
        listing = resolve(REPO, source, "model")
        assert download(listing, source, out) == Received(listing.size - kept, kept)
        (asked,) = hub.asked_for(WEIGHTS)
    assert asked.headers["range"] == f"bytes={kept}-"
    assert content(out) == content(mirror / "acme/tiny")


def test_a_whole_partial_file_is_only_hashed(mirror: Path, out: Path) -> None:
    (out / f"{WEIGHTS}.partial").write_bytes((mirror / "acme/tiny" / WEIGHTS).read_bytes())
    with misbehaving_hub(mirror) as hub:
        source = Hub(hub.endpoint)
        download(resolve(REPO, source, "model"), source, out)
        assert hub.asked_for(WEIGHTS) == []
    assert content(out) == content(mirror / "acme/tiny")


@pytest.mark.parametrize("kept", [1_234_567, SIZE])
def test_a_damaged_partial_file_is_noticed_and_fetched_anew(mirror: Path, out: Path, kept: int) -> None:
    damaged = bytearray((mirror / "acme/tiny" / WEIGHTS).read_bytes()[:kept])
    damaged[7] ^= 1
    (out / f"{WEIGHTS}.partial").write_bytes(damaged)
    with misbehaving_hub(mirror) as hub:
        source = Hub(hub.endpoint)
        download(resolve(REPO, source, "model"), source, out)
        assert "range" not in hub.asked_for(WEIGHTS)[-1].headers
    assert content(out) == content(mirror / "acme/tiny")


def test_a_partial_file_that_is_too_long_is_thrown_away(mirror: Path, out: Path) -> None:
    (out / f"{WEIGHTS}.partial").write_bytes(b"x" * (SIZE + 1))
    download(resolve(REPO, Mirror(mirror), "model"), Mirror(mirror), out)
    assert content(out) == content(mirror / "acme/tiny")


def test_a_partial_file_that_is_a_link_is_not_written_through(mirror: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("keep")
    (out / f"{WEIGHTS}.partial").symlink_to(tmp_path / "precious")
    with pytest.raises(InputOutput):
        download(resolve(REPO, Mirror(mirror), "model"), Mirror(mirror), out)
    assert (tmp_path / "precious").read_text() == "keep"


def test_space_is_looked_at_first(mirror: Path, out: Path) -> None:
    listing = resolve(REPO, Mirror(mirror), "model")
    with pytest.raises(InputOutput) as error:
        download(listing, Mirror(mirror), out, free=lambda _: listing.size + MARGIN - 1)
    assert error.value.code == "hub.no_space"
    assert f"{listing.size + MARGIN:,}" in str(error.value)
    assert f"{listing.size + MARGIN - 1:,}" in str(error.value)
    assert content(out) == {}
    download(listing, Mirror(mirror), out, free=lambda _: listing.size + MARGIN)


def test_what_is_there_already_needs_no_space(mirror: Path, out: Path) -> None:
    listing = resolve(REPO, Mirror(mirror), "model")
    (out / f"{WEIGHTS}.partial").write_bytes((mirror / "acme/tiny" / WEIGHTS).read_bytes()[:2_000_000])
    download(listing, Mirror(mirror), out, free=lambda _: listing.size + MARGIN - 2_000_000)


def test_a_folder_with_other_things_in_it_is_left_alone(mirror: Path, out: Path) -> None:
    (out / "thesis.tex").write_text("...")
    with pytest.raises(BadConfiguration, match=r"thesis\.tex"):
        download(resolve(REPO, Mirror(mirror), "model"), Mirror(mirror), out)
    assert content(out) == {"thesis.tex": b"..."}


def test_a_listing_with_hostile_paths_writes_nothing(mirror: Path, out: Path) -> None:
    hostile = listing_of(*(ListedFile(path=path, size=3, sha256=ABC_SHA256) for path in ("../a", "/b", "A", "a")))
    with pytest.raises(Refused) as refused:
        download(hostile, Mirror(mirror), out)
    assert len(refused.value.refusals) == 3
    assert content(out) == {}


def test_a_listing_of_a_folder_cannot_come_from_a_hub(mirror: Path, out: Path) -> None:
    with pytest.raises(BadConfiguration):
        download(listing_of(ListedFile(path="a", size=3, sha256=ABC_SHA256)), Hub("http://127.0.0.1:9"), out)


def test_a_disk_that_fills_up_is_said_so_and_keeps_what_came(mirror: Path, out: Path) -> None:
    class Full(LocalFiles):
        @contextmanager
        def open_at(self, file: ListedFile, offset: int) -> Iterator[tuple[int, Iterator[bytes]]]:
            with super().open_at(file, offset) as (start, chunks):
                yield start, self._fail_after(next(chunks))

        def _fail_after(self, chunk: bytes) -> Iterator[bytes]:
            yield chunk
            raise OSError(errno.ENOSPC, "No space left on device")

    file = next(file for file in resolve(REPO, Mirror(mirror), "model").files if file.path == WEIGHTS)
    together = Together(Tally(file.size, silent), threading.Event(), None)
    with pytest.raises(InputOutput) as error:
        Transfer(file, out / WEIGHTS, Full(mirror / "acme/tiny"), together).run()
    assert error.value.code == "hub.no_space"
    (partial,) = content(out)
    assert partial == f"{WEIGHTS}.partial"


@pytest.mark.parametrize("place", ["file://{}", "file://localhost{}", "{}"])
def test_a_mirror_is_a_path_or_a_file_address(mirror: Path, place: str) -> None:
    assert choose_source(mirror=place.format(mirror)) == Mirror(mirror)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"endpoint": "http://x", "mirror": "/tmp"},
        {"mirror": "/no/such"},
        {"mirror": "http://x/y"},
        {"mirror": "file://elsewhere/tmp"},
        {"endpoint": "ftp://x"},
        {"endpoint": "huggingface.co"},
        {"endpoint": "http://user:secret@x"},
        {"endpoint": "http://x", "token": ""},
        {"endpoint": "http://x", "token": "hf_a b"},
        {"endpoint": "http://x", "token": "hf_a\nX-Evil: 1"},
    ],
)
def test_a_wrong_source_is_a_wrong_setting_and_shows_no_secret(wrong: dict[str, str]) -> None:
    with pytest.raises(BadConfiguration) as error:
        choose_source(**wrong)
    assert "secret" not in str(error.value)
    assert "hf_a" not in str(error.value)


def test_a_token_is_not_part_of_how_a_source_reads() -> None:
    assert "hf_canary" not in repr(Hub("http://x", "hf_canary"))
