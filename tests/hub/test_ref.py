from pathlib import Path

import pytest

from draftmill.hub.ref import Ref, parse_ref
from draftmill.outcome import Refused


@pytest.mark.parametrize(
    ("text", "repo", "revision"),
    [
        ("amd/PARD-Qwen3-0.6B", "amd/PARD-Qwen3-0.6B", "main"),
        ("amd/PARD-Qwen3-0.6B@main", "amd/PARD-Qwen3-0.6B", "main"),
        ("a/b@0123456789abcdef0123456789abcdef01234567", "a/b", "0123456789abcdef0123456789abcdef01234567"),
        ("a/b@refs/pr/3", "a/b", "refs/pr/3"),
    ],
)
def test_a_repository_name_with_and_without_revision(text: str, repo: str, revision: str) -> None:
    assert parse_ref(text) == Ref(repo=repo, revision=revision)


def test_a_folder_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a model").mkdir()
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path / "a model"), "./a model", "a model"):
        assert parse_ref(text) == Ref(folder=(tmp_path / "a model").resolve())


def test_a_name_that_is_a_folder_too_is_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "amd" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused) as refused:
        parse_ref("amd/tiny")
    assert refused.value.code == "hub.ref_ambiguous"
    assert parse_ref("./amd/tiny").folder == tmp_path / "amd" / "tiny"
    assert parse_ref("amd/tiny@main") == Ref(repo="amd/tiny")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tiny",
        "a/b/c",
        "a//b",
        "/no/such/folder",
        "./no-such-folder",
        "../a/b/../nowhere",
        "a/..",
        "a/.hidden",
        "a/b--c",
        "a/b.git",
        "a b/c",
        "a/b@",
        "a/b@x y",
        "a/b@../x",
        "a/b@-x",
        "a/b@v1@v2",
        "a/b\n",
        "https://huggingface.co/a/b",
        "file:///tmp",
    ],
)
def test_a_bad_form_is_refused_with_advice(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_ref(text)
    assert refused.value.code == "hub.ref"
    assert refused.value.refusals[0].measured == text
    assert refused.value.refusals[0].sentence
