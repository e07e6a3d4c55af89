import pytest

from draftmill.outcome import Refused
from draftmill.store.keys import check_key, check_keys


@pytest.mark.parametrize(
    "key", ["a", "models/amd/PARD-Qwen3-0.6B/a1-b2/PARD_x.gguf", "a" * 255, "index.json", "a/b+c=d@e"]
)
def test_plain_keys_are_taken(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "/".join(["a" * 200] * 6),
        "a?b",
        "a*",
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        ".hidden",
        "a/.b",
        "a b",
        "ä",
        "a\\b",
        "a\n",
        "a\x00",
        "a" * 256,
    ],
)
def test_keys_that_some_store_would_not_keep_are_refused(key: str) -> None:
    with pytest.raises(Refused) as refused:
        check_key(key)
    assert refused.value.code == "store.key"


def test_a_key_that_is_the_folder_of_another_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        check_keys(["a/b/c", "a/b", "z"])
    assert [(r.code, r.where, r.measured) for r in refused.value.refusals] == [
        ("store.key_beside_prefix", "a/b/c", "a/b")
    ]


def test_keys_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(Refused) as refused:
        check_keys(["Model.gguf", "model.gguf"])
    assert refused.value.code == "store.key_case"


def test_a_key_that_merely_starts_like_another_is_taken() -> None:
    check_keys(["a/b", "a/bc", "a/b.json", "ab"])
