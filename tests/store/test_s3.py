import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import BadConfiguration, InputOutput, MillError, NotPermitted, Temporary, Unavailable
from draftmill.store.interface import Promises
from draftmill.store.multipart import MIB, part_size_for
from draftmill.store.reading import get, sha256_of
from draftmill.store.s3 import S3Store
from tests.store.conftest import fresh_url, open_s3, set_credentials
from tests.store.samples import BIG, digest, noise
from tests.store.scripted import Answer, scripted
from tests.support.s3_servers import ACCESS_KEY, BUCKET, SECRET_KEY, CuttingWire, Server

BAD_SECRET = "canary-wrong-secret-51c2"


def pending_uploads(server: Server, store: S3Store) -> list[Any]:
    answer = server.client().list_multipart_uploads(Bucket=BUCKET, Prefix=store.prefix + "/")
    return list(answer.get("Uploads", []))


def big_file(folder: Path) -> tuple[Path, str]:
    (folder / "big").write_bytes(noise(BIG))
    return folder / "big", digest(noise(BIG))


def test_the_sha256_is_lower_case_metadata_that_others_can_read(
    weed: Server, s3_store: S3Store, tmp_path: Path
) -> None:
    path, sha256 = big_file(tmp_path)
    s3_store.create("small", b"abc", digest(b"abc"))
    s3_store.create("big", path, sha256)
    for key, expected in {"small": digest(b"abc"), "big": sha256}.items():
        head = weed.client().head_object(Bucket=BUCKET, Key=f"{s3_store.prefix}/{key}")
        assert head["Metadata"] == {"sha256": expected}


def test_pages_open_in_a_browser_and_models_do_not(weed: Server, s3_store: S3Store) -> None:
    s3_store.create("models/o/r/index.html", b"<p>", digest(b"<p>"))
    s3_store.replace("index.html", b"<p>", None)
    s3_store.replace("index.json", b"{}", None)
    s3_store.create("models/o/r/c/a.gguf", b"GGUF", digest(b"GGUF"))
    expected = {
        "models/o/r/index.html": "text/html; charset=utf-8",
        "index.html": "text/html; charset=utf-8",
        "index.json": "application/json",
        "models/o/r/c/a.gguf": "application/octet-stream",
    }
    for key, kind in expected.items():
        head = weed.client().head_object(Bucket=BUCKET, Key=f"{s3_store.prefix}/{key}")
        assert head["ContentType"] == kind


def test_a_file_above_the_threshold_goes_up_in_parts(weed: Server, s3_store: S3Store, tmp_path: Path) -> None:
    path, sha256 = big_file(tmp_path)
    s3_store.create("big", path, sha256)
    # An S3 multipart ETag ends in the number of parts: 12 MiB in parts of 5 MiB are three.
    assert weed.client().head_object(Bucket=BUCKET, Key=f"{s3_store.prefix}/big")["ETag"].endswith('-3"')
    assert sha256_of(s3_store, "big") == sha256


@pytest.mark.parametrize(
    ("size", "least", "expected"),
    [
        (1, 16 * MIB, 16 * MIB),
        (160_000 * MIB, 16 * MIB, 16 * MIB),  # 10,000 parts exactly
        (160_000 * MIB + 1, 16 * MIB, 17 * MIB),
    ],
)
def test_parts_grow_so_that_ten_thousand_suffice(size: int, least: int, expected: int) -> None:
    assert part_size_for(size, least) == expected


def test_a_wrong_file_leaves_no_upload_pending(weed: Server, s3_store: S3Store, tmp_path: Path) -> None:
    path, _ = big_file(tmp_path)
    with pytest.raises(InputOutput):
        s3_store.create("big", path, digest(b"other"))
    assert pending_uploads(weed, s3_store) == []


@pytest.mark.parametrize("conditional", [True, False])
def test_a_late_multipart_upload_does_not_overwrite(
    weed: Server, s3_store: S3Store, tmp_path: Path, conditional: bool
) -> None:
    path, sha256 = big_file(tmp_path)
    s3_store.promises = Promises(conditional_complete=conditional)

    def somebody_is_first(_: str, done: int, total: int) -> None:
        if done == total:
            weed.client().put_object(Bucket=BUCKET, Key=f"{s3_store.prefix}/big", Body=b"first")

    creation = s3_store.create("big", path, sha256, somebody_is_first)
    assert not creation.created
    assert get(s3_store, "big") == b"first"
    assert pending_uploads(weed, s3_store) == []


def test_a_connection_cut_in_every_part_leaves_nothing_and_says_so(
    weed: Server, tmp_path: Path, s3_store: S3Store
) -> None:
    path, sha256 = big_file(tmp_path)
    with CuttingWire(weed.port, after=2 << 20) as wire:
        store = open_s3(f"s3://{BUCKET}/{s3_store.prefix}?endpoint_url={wire.endpoint}")
        with pytest.raises(Temporary, match="the connection broke in the middle") as error:
            store.create("big", path, sha256)
    assert wire.cuts_made >= 2
    assert error.value.code == "store.cut"
    assert list(s3_store.entries("")) == []
    assert pending_uploads(weed, s3_store) == []


def test_a_connection_cut_once_is_made_good(weed: Server, tmp_path: Path, s3_store: S3Store) -> None:
    path, sha256 = big_file(tmp_path)
    with CuttingWire(weed.port, after=2 << 20, cuts=1) as wire:
        store = open_s3(f"s3://{BUCKET}/{s3_store.prefix}?endpoint_url={wire.endpoint}")
        assert store.create("big", path, sha256).created
    assert wire.cuts_made == 1
    assert sha256_of(s3_store, "big") == sha256


def test_bytes_that_differ_from_their_record_are_damaged(weed: Server, s3_store: S3Store) -> None:
    weed.client().put_object(
        Bucket=BUCKET, Key=f"{s3_store.prefix}/a", Body=b"rotten", Metadata={"sha256": digest(b"good")}
    )
    with pytest.raises(InputOutput) as error:
        get(s3_store, "a")
    assert error.value.code == "store.damaged"


def test_an_object_of_another_program_has_no_sha256(weed: Server, s3_store: S3Store) -> None:
    weed.client().put_object(Bucket=BUCKET, Key=f"{s3_store.prefix}/a", Body=b"x")
    head = s3_store.head("a")
    assert head is not None
    assert head.sha256 is None
    assert get(s3_store, "a") == b"x"


def test_the_sweep_leaves_a_young_upload_alone(weed: Server, s3_store: S3Store) -> None:
    weed.client().create_multipart_upload(Bucket=BUCKET, Key=f"{s3_store.prefix}/young")
    s3_store.sweep()
    assert len(pending_uploads(weed, s3_store)) == 1


def test_the_sweep_aborts_an_old_upload(weed: Server, s3_store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import timedelta

    monkeypatch.setattr("draftmill.store.s3.ABANDONED", timedelta(seconds=-60))
    weed.client().create_multipart_upload(Bucket=BUCKET, Key=f"{s3_store.prefix}/old")
    s3_store.sweep()
    assert pending_uploads(weed, s3_store) == []


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
def test_wrong_credentials_are_not_permitted_and_never_shown(
    weed: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    monkeypatch.setenv(name, BAD_SECRET)
    caplog.set_level(logging.DEBUG)
    store = open_s3(fresh_url(weed))
    for verb in (store.identity, lambda: store.create("a", b"x", digest(b"x")), lambda: list(store.entries(""))):
        with pytest.raises(NotPermitted) as error:
            verb()
        shown = "".join(traceback.format_exception(error.value)) + repr(error.value) + repr(store) + store.name
        assert BAD_SECRET not in shown
        assert SECRET_KEY not in shown
    assert SECRET_KEY not in caplog.text
    if name == "AWS_SECRET_ACCESS_KEY":
        assert BAD_SECRET not in caplog.text


def test_a_credential_with_a_line_break_is_not_quoted(weed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{BAD_SECRET}\nmore")
    with pytest.raises(BadConfiguration, match="line breaks") as error:
        open_s3(fresh_url(weed)).identity()
    assert BAD_SECRET not in "".join(traceback.format_exception(error.value))


def test_no_credentials_are_said_so(weed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(BadConfiguration, match="AWS_ACCESS_KEY_ID") as error:
        open_s3(fresh_url(weed)).identity()
    assert error.value.code == "store.no_credentials"


def test_a_missing_bucket_is_named(weed: Server) -> None:
    store = open_s3(f"s3://not-there?endpoint_url={weed.endpoint}")
    for verb in (store.identity, lambda: list(store.entries(""))):
        with pytest.raises(BadConfiguration, match=r"not-there.*create it") as error:
            verb()
        assert error.value.code == "store.no_bucket"


def test_nobody_listening_is_unavailable() -> None:
    with pytest.raises(Unavailable, match="check that the server runs"):
        open_s3(f"s3://{BUCKET}?endpoint_url=http://127.0.0.1:9").identity()


THERE = Answer(200, headers={"ETag": '"e"', "Content-Length": "5", "x-amz-meta-sha256": "ab" * 32})


@pytest.fixture(scope="module")
def script() -> Iterator[tuple[dict[str, list[Answer]], S3Store]]:
    """What the server shall answer, and a store on it that asks once."""
    with scripted() as server, pytest.MonkeyPatch.context() as environment:
        set_credentials(environment)
        environment.setenv("AWS_MAX_ATTEMPTS", "1")
        yield server.answers, open_s3(f"s3://{BUCKET}?endpoint_url={server.endpoint}")


Script = tuple[dict[str, list[Answer]], S3Store]


@pytest.mark.parametrize("status", [304, 412])
def test_304_and_412_both_mean_that_it_exists(status: int, script: Script) -> None:
    answers, store = script
    answers.update(PUT=[Answer(status, "PreconditionFailed" if status == 412 else "")], HEAD=[THERE])
    creation = store.create("a", b"x", digest(b"x"))
    assert not creation.created
    assert creation.head.sha256 == "ab" * 32


def test_a_conflict_is_tried_again(script: Script) -> None:
    answers, store = script
    conflict = Answer(409, "ConditionalRequestConflict")
    answers.update(PUT=[conflict, conflict, Answer(200, headers={"ETag": '"e"'})])
    assert store.create("a", b"x", digest(b"x")).created


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        (Answer(503, "SlowDown"), Temporary, "store.temporary"),
        (Answer(500, "InternalError"), Temporary, "store.temporary"),
        (Answer(400, "BadDigest"), Temporary, "store.temporary"),
        (Answer(409, "ConditionalRequestConflict"), Temporary, "store.temporary"),
        (Answer(403, "AccessDenied"), NotPermitted, "store.not_permitted"),
        (Answer(403, "RequestTimeTooSkewed"), BadConfiguration, "store.clock"),
        (Answer(400, "AuthorizationHeaderMalformed"), BadConfiguration, "store.region"),
        (Answer(404, "NoSuchBucket"), BadConfiguration, "store.no_bucket"),
        (Answer(507, "InsufficientStorage"), InputOutput, "store.full"),
        (Answer(501, "NotImplemented"), Unavailable, "store.unexpected_answer"),
    ],
)
def test_each_answer_of_a_server_has_its_ending(
    answer: Answer, kind: type[MillError], code: str, script: Script
) -> None:
    answers, store = script
    answers.update(PUT=[answer])
    with pytest.raises(kind) as error:
        store.create("a", b"x", digest(b"x"))
    assert type(error.value) is kind
    assert error.value.code == code
    assert ACCESS_KEY not in str(error.value)
