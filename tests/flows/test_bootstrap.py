"""The bucket of a stack: made where it is missing, or why not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.outcome import NotPermitted
from draftmill.store.opening import open_store
from flows.bootstrap import make_bucket, prepare_store
from tests.store.conftest import set_credentials
from tests.store.scripted import Answer, Scripted, scripted


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Scripted]:
    set_credentials(monkeypatch)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    with scripted() as server:
        yield server


def test_a_bucket_that_may_not_be_made_is_a_sentence(server: Scripted) -> None:
    server.answers.update(HEAD=[Answer(404)], PUT=[Answer(403, "AccessDenied")])
    with pytest.raises(NotPermitted, match="the credentials do not allow this"):
        prepare_store(f"s3://theirs?endpoint_url={server.endpoint}")


def test_a_bucket_that_another_host_has_just_made_is_made(server: Scripted) -> None:
    server.answers.update(PUT=[Answer(409, "BucketAlreadyOwnedByYou")])
    make_bucket(open_store(f"s3://ours?endpoint_url={server.endpoint}").client, "ours")  # type: ignore[attr-defined]


@pytest.mark.parametrize(("region", "stated"), [("us-east-1", b""), ("eu-central-1", b"eu-central-1")])
def test_a_bucket_is_made_in_the_stores_region(server: Scripted, region: str, stated: bytes) -> None:
    client = open_store(f"s3://ours?endpoint_url={server.endpoint}&region={region}").client  # type: ignore[attr-defined]
    sent: list[bytes] = []
    client.meta.events.register("before-send.s3.CreateBucket", lambda request, **_: sent.append(request.body or b""))
    server.answers.update(PUT=[Answer(200)])
    make_bucket(client, "ours")
    [body] = sent
    assert (b"LocationConstraint" in body) == bool(stated)
    assert stated in body
