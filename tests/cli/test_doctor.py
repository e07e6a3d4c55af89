"""What `draftmill doctor` says of the hub and the store that the environment names."""

from pathlib import Path

import pytest

from draftmill.cli.doctor import check_hub, check_store
from draftmill.hub.server import serve
from draftmill.outcome import BadConfiguration
from flows.secrets import secret_files


def test_a_token_in_a_file_is_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_TOKEN_FILE", raising=False)
    with serve(tmp_path) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        [without] = check_hub()
        (tmp_path / "token").write_text("hf_secret\n")
        monkeypatch.setenv("HF_TOKEN_FILE", str(tmp_path / "token"))
        [given] = check_hub()
    assert without.what.endswith("no HF_TOKEN: gated repositories stay closed")
    assert given.what.endswith("a token is given")
    assert "hf_secret" not in given.what


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_token_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    place = tmp_path / "token"
    if content is not None:
        place.write_bytes(content)
    monkeypatch.setenv("HF_TOKEN_FILE", str(place))
    [found] = check_hub()
    assert (found.state, found.mend) == ("missing", "name a file that holds the token, or set HF_TOKEN")
    with pytest.raises(BadConfiguration, match=f"HF_TOKEN_FILE names {place}"), secret_files():
        pass


def test_a_stores_address_is_read_as_the_store_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_STORE", f"file://{tmp_path}/a%20b")
    [found] = check_store()
    assert found.what.startswith(f"{tmp_path}/a b, ")
