"""Three gigabytes to SeaweedFS: memory stays flat, and what was killed is gone on with.

The file is a hole but for a mark in every part, so that it takes no room, here or in the server (which compresses).
"""

import hashlib
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from draftmill.outcome import Temporary
from draftmill.store.multipart import MIB
from draftmill.store.s3 import PART_SIZE, S3Store
from draftmill.store.unfinished import noted
from tests.store.conftest import fresh_url, open_s3
from tests.store.samples import BIG, digest, noise
from tests.support.s3_servers import BUCKET, CuttingWire, Server

GIB3 = 3 << 30
PARTS = GIB3 // PART_SIZE
KEY = "models/amd/PARD-Tiny/0123456789ab-feedface/big.gguf"


def mark(part: int) -> bytes:
    return f"part {part:8d}".encode()


def marked_hole(path: Path) -> str:
    """Writes the file; gives its sha256."""
    whole, hole = hashlib.sha256(), bytes(PART_SIZE - len(mark(0)))
    with path.open("wb") as file:
        file.truncate(GIB3)
        for part in range(PARTS):
            os.pwrite(file.fileno(), mark(part), part * PART_SIZE)
            whole.update(mark(part))
            whole.update(hole)
    return whole.hexdigest()


def peak_mib() -> float:
    """Of this process alone: getrusage's also knows the parent that it was forked from."""
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def counting(store: S3Store) -> list[int]:
    """The parts that this store sends from now on, as it sends them."""
    sent: list[int] = []
    upload_part = store.client.upload_part

    def count(**given: object) -> object:
        sent.append(int(str(given["PartNumber"])))
        return upload_part(**given)  # type: ignore[arg-type]

    store.client.upload_part = count  # type: ignore[assignment, method-assign]
    return sent


@pytest.mark.slow
def test_three_gigabytes_go_up_in_flat_memory_and_a_killed_upload_is_gone_on_with(weed: Server, tmp_path: Path) -> None:
    path, url = tmp_path / "big.gguf", fresh_url(weed)
    sha256 = marked_hole(path)
    context = multiprocessing.get_context("fork")
    told = context.SimpleQueue()

    def opened() -> S3Store:
        store = open_s3(url, PART_SIZE)
        store.note_uploads(tmp_path / "notes")
        return store

    def die_at_two_thirds(_: str, done: int, __: int) -> None:
        if done >= GIB3 * 2 // 3:
            os.kill(os.getpid(), signal.SIGKILL)

    def go_on() -> None:
        store = opened()
        sent = counting(store)
        before = peak_mib()
        creation = store.create(KEY, path, sha256)
        told.put((creation.created, len(sent), min(sent), peak_mib() - before))

    first = context.Process(target=lambda: opened().create(KEY, path, sha256, die_at_two_thirds))
    first.start()
    first.join()
    assert first.exitcode == -signal.SIGKILL
    store = opened()
    assert list(store.entries("")) == []
    second = context.Process(target=go_on)
    second.start()
    second.join()
    created, sent, lowest, growth = told.get()
    assert created
    # What was in flight when it was killed is sent again, and nothing else.
    assert PARTS // 3 - 4 <= sent <= PARTS // 3 + 4
    assert lowest >= PARTS * 2 // 3 - 4
    # Five parts of 16 MiB, and what boto3 needs for itself.
    assert growth < 160
    head = store.head(KEY)
    assert head is not None
    assert (head.size, head.sha256) == (GIB3, sha256)
    assert head.etag.endswith(f'-{PARTS}"')
    for part in (0, PARTS * 2 // 3 - 1, PARTS * 2 // 3, PARTS - 1):
        assert b"".join(store.read(KEY, part * PART_SIZE, part * PART_SIZE + len(mark(part)))) == mark(part)
    assert list((tmp_path / "notes").iterdir()) == []
    assert not store.client.list_multipart_uploads(Bucket=BUCKET, Prefix=f"{store.prefix}/").get("Uploads")


def begun(weed: Server, store: S3Store, path: Path, sha256: str, parts: dict[int, bytes]) -> str:
    """An upload with these parts, noted as if its writer had been killed."""
    client, place = weed.client(), store.place("big")
    upload_id: str = client.create_multipart_upload(**place, Metadata={"sha256": sha256})["UploadId"]
    for number, data in parts.items():
        client.upload_part(**place, UploadId=upload_id, PartNumber=number, Body=data)
    with noted(path.parent / "notes", store.client.meta.endpoint_url, place, sha256, store.part_size) as note:
        note.write(upload_id)
    store.note_uploads(path.parent / "notes")
    return upload_id


@pytest.mark.parametrize("wrong", ["other bytes", "another size", "swept"])
def test_parts_that_are_not_the_files_are_sent_again(weed: Server, tmp_path: Path, wrong: str) -> None:
    data = noise(BIG)
    path, sha256 = tmp_path / "big", digest(data)
    path.write_bytes(data)
    store = open_s3(fresh_url(weed))
    first = data[: store.part_size]
    other = {"other bytes": first[:-1] + b"x", "another size": data[: 6 * MIB], "swept": first}[wrong]
    upload_id = begun(weed, store, path, sha256, {1: other})
    if wrong == "swept":
        weed.client().abort_multipart_upload(**store.place("big"), UploadId=upload_id)
    sent = counting(store)
    assert store.create("big", path, sha256).created
    assert sorted(sent) == [1, 2, 3]
    assert b"".join(store.read("big")) == data


def test_an_upload_whose_writer_lives_is_left_to_it(weed: Server, tmp_path: Path) -> None:
    data = noise(BIG)
    path, sha256 = tmp_path / "big", digest(data)
    path.write_bytes(data)
    store = open_s3(fresh_url(weed))
    upload_id = begun(weed, store, path, sha256, {1: data[: store.part_size]})
    place = store.place("big")
    sent = counting(store)
    with noted(tmp_path / "notes", store.client.meta.endpoint_url, place, sha256, store.part_size) as note:
        assert note.upload_id == upload_id
        assert store.create("big", path, sha256).created
    assert sorted(sent) == [1, 2, 3]
    assert [part["PartNumber"] for part in weed.client().list_parts(**place, UploadId=upload_id)["Parts"]] == [1]


def test_a_cut_upload_keeps_the_parts_that_arrived_and_the_next_try_sends_the_others(
    weed: Server, tmp_path: Path
) -> None:
    data = noise(BIG)  # two parts of 5 MiB, which never get through, and one of 2 MiB
    path, sha256 = tmp_path / "big", digest(data)
    path.write_bytes(data)
    with CuttingWire(weed.port, after=4 << 20) as wire:
        store = open_s3(fresh_url(weed).replace(weed.endpoint, wire.endpoint))
        store.note_uploads(tmp_path / "notes")
        with pytest.raises(Temporary, match="Repeat") as error:
            store.create("big", path, sha256)
        assert error.value.code == "store.cut"
        assert list(store.entries("")) == []
        wire.cuts_left = 0
        sent = counting(store)
        assert store.create("big", path, sha256).created
    assert sorted(sent) == [1, 2]
    assert b"".join(open_s3(fresh_url(weed)).client.get_object(**store.place("big"))["Body"]) == data
