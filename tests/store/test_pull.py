"""Pulls from a folder and from SeaweedFS: whole, resumed, cut, tampered with, out of room."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import InputOutput, MillError, NotPermitted, Refused, Temporary
from draftmill.store import partial_file
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from draftmill.store.opening import open_store
from draftmill.store.pull import RECORD, pull
from draftmill.store.s3 import S3Store
from draftmill.store.verify import verify
from tests.store.conftest import open_s3
from tests.store.disks import disk
from tests.store.drafters import MIB, contents, model_name, publish_drafter
from tests.store.samples import noise
from tests.store.scripted import Answer, scripted
from tests.support.s3_servers import CuttingWire, Server

F16, Q4 = model_name("F16"), model_name("Q4_K_M")
OURS = {"manifest.json", "draftmill-pull.json", "draftmill-notices.txt", "provenance.intoto.json"}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 3 MiB and 5 bytes has four parts then."""
    monkeypatch.setattr(partial_file, "PART", MIB)


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def no_pause(_: float) -> None:
    pass


class Reading:
    """Another store's face that counts the bytes read of models, and may do something at each piece."""

    def __init__(self, store: Store, at_piece: Any = None) -> None:
        self._store, self._at_piece, self.read_bytes = store, at_piece, 0
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        for piece in self._store.read(key, start, stop):
            for at in range(0, len(piece), MIB // 4):
                part = piece[at : at + MIB // 4]
                if key.endswith(".gguf"):
                    with self._lock:
                        self.read_bytes += len(part)
                    if self._at_piece:
                        self._at_piece(self)
                yield part


def overwrite(store: Store, key: str, data: bytes) -> None:
    """As somebody with rights and without our code does it."""
    if isinstance(store, S3Store):
        store.client.put_object(**store.place(key), Body=data)
    else:
        Path(store.where(key)).parent.mkdir(parents=True, exist_ok=True)
        Path(store.where(key)).write_bytes(data)


def test_a_pull_writes_what_the_manifest_promises_and_a_second_one_fetches_nothing(
    store: Store, tmp_path: Path
) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    out = tmp_path / "a" / "out"
    steps: list[tuple[str, int, int]] = []
    pulled = pull(store, manifest.key, out, progress=lambda *step: steps.append(step))
    there = bytes_below(out)
    assert set(there) == set(contents()) | OURS
    assert {name: there[name] for name in contents()} == {name: data for name, (_, data) in contents().items()}
    assert there["manifest.json"] == manifest.to_bytes()
    total = sum(len(data) for _, data in contents().values())
    assert (pulled.received, pulled.kept) == (total, 0)
    assert steps[-1] == ("amd/PARD-Tiny", total, total)
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    again = pull(store, manifest.key, out)
    assert (again.received, again.kept) == (0, total)


def test_the_notices_name_licence_origin_and_changes(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    pull(store, manifest.key, tmp_path / "out")
    text = (tmp_path / "out" / "draftmill-notices.txt").read_text()
    for line in ("Licence: MIT (text: LICENSE)", "Built with Tiny", "The weights were changed", "draftmill 0.1.0"):
        assert line in text
    assert f"Made from amd/PARD-Tiny at {manifest.source.commit}" in text


def test_an_empty_file_and_one_in_a_folder_arrive(store: Store, tmp_path: Path) -> None:
    (tmp_path / "source" / "LICENSES").mkdir(parents=True)
    files = {"LICENSES/MIT.txt": ("licence", b"text"), "empty.txt": ("sidecar", b"")}
    manifest = publish_drafter(store, tmp_path / "source", files=files)
    pull(store, manifest.key, tmp_path / "out")
    assert (tmp_path / "out" / "LICENSES" / "MIT.txt").read_bytes() == b"text"
    assert (tmp_path / "out" / "empty.txt").read_bytes() == b""
    assert verify(tmp_path / "out").findings == ()


def test_a_quant_brings_its_model_and_what_belongs_to_it(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    pull(store, manifest.key, tmp_path / "out", ["q4_k_m"])
    others = {F16, F16.replace(".gguf", ".check.json")}
    assert set(bytes_below(tmp_path / "out")) == set(contents()) - others | OURS
    found = verify(tmp_path / "out")
    assert found.findings == ()
    assert {file.path for file in found.not_expected} == others
    pull(store, manifest.key, tmp_path / "out", ["F16"])
    assert set(bytes_below(tmp_path / "out")) == set(contents()) | OURS


def test_a_quant_that_is_not_promised_is_refused_with_those_that_are(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, tmp_path / "out", ["Q8_0", "F16", "Q2_K"])
    assert [refusal.measured for refusal in error.value.refusals] == ["Q8_0", "Q2_K"]
    assert "there are F16, Q4_K_M" in str(error.value)
    assert not (tmp_path / "out").exists()


def test_an_object_beside_the_promised_ones_is_not_pulled(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    overwrite(store, f"{manifest.folder}/{model_name('Q8_0')}", b"not promised")
    pull(store, manifest.key, tmp_path / "out")
    assert not (tmp_path / "out" / model_name("Q8_0")).exists()
    with pytest.raises(Refused, match="not published as Q8_0"):
        pull(store, manifest.key, tmp_path / "out", ["Q8_0"])


def test_an_object_that_was_changed_is_refused_and_not_kept(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    changed = bytearray(contents()[F16][1])
    changed[2 * MIB] ^= 1
    overwrite(store, manifest.key_of(F16), bytes(changed))
    overwrite(store, manifest.key_of("tokenizer.json"), b"[]")
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, tmp_path / "out")
    assert {(refusal.code, Path(refusal.where).name) for refusal in error.value.refusals} == {
        ("pull.bytes_differ", F16),
        ("pull.bytes_differ", "tokenizer.json"),
    }
    assert {refusal.measured for refusal in error.value.refusals} == {
        hashlib.sha256(changed).hexdigest(),
        hashlib.sha256(b"[]").hexdigest(),
    }
    there = bytes_below(tmp_path / "out")
    assert F16 not in there and "tokenizer.json" not in there and "manifest.json" not in there
    assert there[Q4] == contents()[Q4][1]
    assert not any(name.endswith((".partial", ".parts")) for name in there)


@pytest.mark.parametrize("length", [0, MIB - 1, MIB, 3 * MIB + 4])
def test_an_object_that_is_too_short_is_refused(store: Store, tmp_path: Path, length: int) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    overwrite(store, manifest.key_of(F16), contents()[F16][1][:length])
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, tmp_path / "out")
    assert error.value.code == "pull.too_short"
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_object_that_grew_gives_the_promised_bytes(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    overwrite(store, manifest.key_of(F16), contents()[F16][1] + b"more")
    pull(store, manifest.key, tmp_path / "out")
    assert (tmp_path / "out" / F16).read_bytes() == contents()[F16][1]


def test_an_object_that_is_gone_is_told(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    store.delete(manifest.key_of(F16))
    with pytest.raises(InputOutput) as error:
        pull(store, manifest.key, tmp_path / "out")
    assert error.value.code == "store.missing"


def test_a_manifest_of_another_folder_is_refused(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    key = "models/amd/PARD-Other/0123456789ab-feedface/manifest.json"
    overwrite(store, key, manifest.to_bytes())
    with pytest.raises(Refused) as error:
        pull(store, key, tmp_path / "out")
    assert error.value.code == "pull.manifest_misplaced"


def pull_until_killed(store: Store, key: str, out: Path, at: int) -> None:
    """Ends a child that pulls with SIGKILL after so many bytes of models."""

    def at_piece(reading: Reading) -> None:
        if reading.read_bytes >= at:
            os.kill(os.getpid(), signal.SIGKILL)

    def run() -> None:
        pull(Reading(store, at_piece), key, out, threads=2)  # type: ignore[arg-type]

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


def test_a_killed_pull_goes_on_where_it_ended(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    models = 2 * (3 * MIB + 5)
    for at in (MIB // 4, 3 * MIB, 3 * MIB):
        pull_until_killed(store, manifest.key, tmp_path / "out", at)
        assert not (tmp_path / "out" / "manifest.json").exists()
    reading = Reading(store)
    pulled = pull(reading, manifest.key, tmp_path / "out")  # type: ignore[arg-type]
    # Of two parts in flight each time something was lost, of the others nothing.
    assert reading.read_bytes <= models - 2 * MIB
    assert pulled.received + pulled.kept == sum(file.size for file in manifest.files)
    assert verify(tmp_path / "out").findings == ()


def test_what_a_torn_disk_left_is_thrown_away_and_fetched_once_more(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    pull_until_killed(store, manifest.key, tmp_path / "out", 3 * MIB)
    [partial] = (tmp_path / "out").glob(f".{F16}.*.partial")
    with partial.open("r+b") as file:
        file.write(b"\0" * 100)
    pulled = pull(store, manifest.key, tmp_path / "out")
    assert pulled.received > 3 * MIB
    assert verify(tmp_path / "out").findings == ()


def test_what_a_pull_left_that_was_killed_at_its_very_end_is_removed(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    out = tmp_path / "out"
    pull(store, manifest.key, out)
    [file] = [file for file in manifest.files if file.path == F16]
    (out / ".manifest.json.01234567.draftmill").mkdir()
    for name in (
        f".{F16}.{file.sha256[:8]}.parts",
        f".{F16}.00000000.partial",
        ".manifest.json.01234567.draftmill/manifest.json",
    ):
        (out / name).write_bytes(b"left")
    assert [finding.code for finding in verify(out).findings] == ["verify.unfinished"] * 3
    pull(store, manifest.key, out)
    assert verify(out).findings == ()


def test_a_parts_file_of_another_length_or_content_is_not_believed(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    for journal in (b"+", b"+++x", b"+++++"):
        out = tmp_path / journal.decode()
        pull_until_killed(store, manifest.key, out, MIB)
        [parts] = out.glob(f".{F16}.*.parts")
        parts.write_bytes(journal)
        pull(store, manifest.key, out)
        assert (out / F16).read_bytes() == contents()[F16][1]


def test_a_connection_that_is_cut_in_a_part_is_taken_up_inside_it(weed: Server, tmp_path: Path) -> None:
    url = f"{weed.url.replace('?', '/cut?')}"
    manifest = publish_drafter(open_s3(url), tmp_path / "source")
    with CuttingWire(weed.port, after=MIB // 2, cuts=4, down=True) as wire:
        store = Reading(open_store(url.replace(weed.endpoint, wire.endpoint)))
        pulled = pull(store, manifest.key, tmp_path / "out", pause=no_pause)  # type: ignore[arg-type]
        assert wire.cuts_made == 4
    assert verify(tmp_path / "out").findings == ()
    # No byte is asked for twice, but those that were on the wire when it was cut.
    assert store.read_bytes < 2 * (3 * MIB + 5) + 4 * MIB
    assert pulled.received == sum(file.size for file in manifest.files)


def test_a_connection_that_is_cut_for_ever_fails_and_is_taken_up_later(weed: Server, tmp_path: Path) -> None:
    url = f"{weed.url.replace('?', '/ever?')}"
    manifest = publish_drafter(open_s3(url), tmp_path / "source")
    with CuttingWire(weed.port, after=9_000, down=True) as wire:
        cut = open_store(url.replace(weed.endpoint, wire.endpoint))
        waits: list[float] = []
        with pytest.raises(Temporary) as error:
            pull(cut, manifest.key, tmp_path / "out", pause=waits.append)
    assert error.value.code in ("store.cut", "store.temporary")
    assert "Repeat" in str(error.value)
    pull(open_store(url), manifest.key, tmp_path / "out")
    assert verify(tmp_path / "out").findings == ()


def test_a_server_that_ignores_ranges_is_read_once_also_when_it_is_cut_or_the_pull_killed(
    moto: Server, tmp_path: Path
) -> None:
    files = contents(["F16"], size=12 * MIB + 5)
    manifest = publish_drafter(open_s3(moto.url), tmp_path / "source", files=files)
    total = sum(file.size for file in manifest.files)

    def opened(wire: CuttingWire) -> Store:
        return open_store(moto.url.replace(moto.endpoint, wire.endpoint))

    with CuttingWire(moto.port, after=1 << 40, down=True, drop_ranges=True) as wire:
        pull(opened(wire), manifest.key, tmp_path / "once")
        # Part by part it would be seven times as much: each answer begins at the first byte. What a closed answer had
        # on its way, that of the question whether ranges are given, is carried too.
        assert total < wire.carried < 2 * total
        pull_until_killed(opened(wire), manifest.key, tmp_path / "killed", 7 * MIB)
        assert pull(opened(wire), manifest.key, tmp_path / "killed").kept >= 6 * MIB
    with CuttingWire(moto.port, after=9 * MIB, cuts=1, down=True, drop_ranges=True) as wire:
        assert pull(opened(wire), manifest.key, tmp_path / "cut", pause=no_pause).received == total
        assert wire.cuts_made == 1
        assert wire.carried < 3 * total
    for name in ("once", "cut", "killed"):
        assert verify(tmp_path / name).findings == ()


def test_a_server_that_answers_a_range_with_200_gives_the_promised_bytes(rclone: Server, tmp_path: Path) -> None:
    local = LocalStore(tmp_path / "store")
    manifest = publish_drafter(local, tmp_path / "source")
    store = open_s3(rclone.url)
    for entry in local.entries("models/"):
        overwrite(store, entry.key, b"".join(local.read(entry.key)))
    pull(store, manifest.key, tmp_path / "out")
    assert verify(tmp_path / "out").findings == ()


def test_an_object_that_changed_while_the_pull_was_dead_is_refused_and_pulled_when_it_is_right_again(
    store: Store, tmp_path: Path
) -> None:
    manifest = publish_drafter(store, tmp_path / "source", files=contents(["F16"]))
    right = contents()[F16][1]
    pull_until_killed(store, manifest.key, tmp_path / "out", 2 * MIB)
    overwrite(store, manifest.key_of(F16), right[:-1] + bytes([right[-1] ^ 1]))
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, tmp_path / "out")
    assert error.value.code == "pull.bytes_differ"
    assert not [path for path in (tmp_path / "out").rglob("*") if F16 in path.name]
    overwrite(store, manifest.key_of(F16), right)
    pull(store, manifest.key, tmp_path / "out")
    assert verify(tmp_path / "out").findings == ()


def test_credentials_that_expire_in_the_middle_end_the_pull_and_new_ones_go_on(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")

    def expire(reading: Reading) -> None:
        if reading.read_bytes > 2 * MIB:
            raise NotPermitted("the credentials have expired", code="store.not_permitted")

    with pytest.raises(NotPermitted):
        pull(Reading(store, expire), manifest.key, tmp_path / "out", threads=2)  # type: ignore[arg-type]
    assert pull(store, manifest.key, tmp_path / "out").kept > 0
    assert verify(tmp_path / "out").findings == ()


def test_expired_and_missing_credentials_are_told_in_one_sentence(
    weed: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = publish_drafter(open_s3(weed.url.replace("?", "/who?")), tmp_path / "source")
    with scripted() as server:
        server.answers.update({method: [Answer(400, "ExpiredToken")] for method in ("GET", "HEAD")})
        with pytest.raises(NotPermitted, match="have expired"):
            pull(open_store(f"s3://bucket?endpoint_url={server.endpoint}"), manifest.key, tmp_path / "out")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(NotPermitted, match="credentials are wrong"):
        pull(open_store(weed.url.replace("?", "/who?")), manifest.key, tmp_path / "out")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(MillError) as error:
        pull(open_store(weed.url.replace("?", "/who?")), manifest.key, tmp_path / "out")
    assert error.value.code == "store.no_credentials"
    assert not (tmp_path / "out").exists()


def test_two_pulls_into_one_folder_do_not_mix(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    refused: list[str] = []

    def second(reading: Reading) -> None:
        if not refused:
            refused.append("")
            with pytest.raises(InputOutput) as error:
                pull(store, manifest.key, tmp_path / "out")
            refused[:] = [error.value.code]

    pull(Reading(store, second), manifest.key, tmp_path / "out", threads=1)  # type: ignore[arg-type]
    assert refused == ["pull.in_use"]
    assert verify(tmp_path / "out").findings == ()


def test_a_folder_of_another_publication_is_left_alone(store: Store, tmp_path: Path) -> None:
    one = publish_drafter(store, tmp_path / "one")
    other = publish_drafter(store, tmp_path / "two", recipe="ab" * 32, files=contents(["F16"], size=100))
    pull(store, one.key, tmp_path / "out")
    before = bytes_below(tmp_path / "out")
    with pytest.raises(Refused) as error:
        pull(store, other.key, tmp_path / "out")
    assert error.value.code == "pull.other_publication"
    (tmp_path / "out" / RECORD).unlink()
    with pytest.raises(Refused) as error:
        pull(store, other.key, tmp_path / "out")
    assert error.value.code == "pull.other_publication"
    assert bytes_below(tmp_path / "out") == {name: data for name, data in before.items() if name != RECORD}


def test_a_file_in_the_way_is_not_overwritten_and_a_damaged_own_one_is(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    out = tmp_path / "out"
    out.mkdir()
    (out / F16).write_bytes(b"mine")
    (out / "LICENSE").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused) as error:
        pull(store, manifest.key, out)
    assert {Path(refusal.where).name for refusal in error.value.refusals} == {F16, "LICENSE"}
    assert (out / F16).read_bytes() == b"mine"
    (out / F16).unlink()
    (out / "LICENSE").unlink()
    pull(store, manifest.key, out)
    (out / F16).write_bytes(b"damaged")
    (out / "LICENSE").unlink()
    (out / "LICENSE").symlink_to(tmp_path / "elsewhere")
    pull(store, manifest.key, out)
    assert verify(out).findings == ()
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    manifest = publish_drafter(store, tmp_path / "source")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputOutput) as error:
        pull(store, manifest.key, tmp_path / "file" / "out")
    assert error.value.code == "pull.files"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk(tmp_path / "disk", mib=8) as folder:
        yield folder


def test_a_disk_without_room_is_told_before_anything_is_fetched(store: Store, tmp_path: Path, small_disk: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=5 * MIB))
    reading = Reading(store)
    with pytest.raises(InputOutput) as error:
        pull(reading, manifest.key, small_disk / "out")  # type: ignore[arg-type]
    assert error.value.code == "pull.no_space"
    assert "bytes are needed" in str(error.value)
    assert reading.read_bytes == 0


def test_a_disk_that_fills_up_in_the_middle_keeps_what_arrived(store: Store, tmp_path: Path, small_disk: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")

    def fill(reading: Reading) -> None:
        if reading.read_bytes > 3 * MIB and not (small_disk / "other").exists():
            (small_disk / "other").write_bytes(b"\0")
            free = os.statvfs(small_disk)
            (small_disk / "other").write_bytes(noise(free.f_bavail * free.f_frsize))

    with pytest.raises(InputOutput) as error:
        pull(Reading(store, fill), manifest.key, small_disk / "out", threads=1)  # type: ignore[arg-type]
    assert error.value.code == "pull.no_space"
    assert "free some space" in str(error.value)
    (small_disk / "other").unlink()
    assert pull(store, manifest.key, small_disk / "out").kept >= 2 * MIB
    assert verify(small_disk / "out").findings == ()


def test_the_record_says_what_was_asked_for(store: Store, tmp_path: Path) -> None:
    manifest = publish_drafter(store, tmp_path / "source")
    out = tmp_path / "out"
    for quants, expected in ((["F16"], ["F16"]), (["Q4_K_M"], ["F16", "Q4_K_M"]), ([], None), (["F16"], None)):
        pull(store, manifest.key, out, quants)
        record = json.loads((out / RECORD).read_text())
        assert record["quants"] == expected
        assert record["manifest_sha256"] == hashlib.sha256(manifest.to_bytes()).hexdigest()
