"""Secrets are files that no disk holds."""

import os
from pathlib import Path

import pytest

from flows.secrets import secret_files


def test_a_secret_is_readable_by_path_while_the_run_lasts_and_lies_on_no_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with secret_files() as secrets:
        path = secrets["hf_token"]
        assert path.read_text() == path.read_text() == "hf_canary", "each reader starts at the beginning"
        assert os.readlink(path).startswith("/memfd:")
        assert list(tmp_path.iterdir()) == []
    assert not path.exists()


def test_a_run_without_secrets_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_TOKEN_FILE", raising=False)
    with secret_files() as secrets:
        assert secrets == {}
