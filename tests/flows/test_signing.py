"""The publisher's key: from the environment alone, told early when it is none, used on what stands unsigned."""

from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration
from draftmill.store.local import LocalStore
from draftmill.store.publish import Published
from draftmill.store.verify_published import verify_published
from flows.signing import VARIABLE, check_key, signed, use_key
from tests.store.drafters import contents, publish_drafter
from tests.support.keys import key_pair


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


def test_what_was_published_unsigned_is_signed_by_the_next_run_that_has_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, pair = LocalStore(tmp_path / "store"), key_pair(tmp_path)
    manifest = publish_drafter(store, tmp_path / "source", files=contents(size=1000))
    published = Published(manifest, store.where(manifest.key), created=False)

    def codes() -> list[str]:
        return [each.code for each in verify_published(store, manifest.key, public_key=pair.public).findings]

    signed(store, published)
    assert codes() == ["signature.missing"]
    monkeypatch.setenv(VARIABLE, str(pair.private))
    assert signed(store, published) is published
    assert codes() == []


def test_a_key_that_is_none_is_told_before_anything_is_done(tmp_path: Path) -> None:
    check_key()
    pair = key_pair(tmp_path)
    for path, word in ((tmp_path / "nowhere", "cannot be read"), (pair.public, "no private key"), (tmp_path, "read")):
        use_key(path)
        with pytest.raises(BadConfiguration, match=word) as error:
            check_key()
        assert error.value.code == "signing.key"
    use_key(pair.private)
    check_key()
