"""A file of settings: what would be hidden or grow without bound is told by its line."""

from pathlib import Path

import pytest

from draftmill.outcome import BadConfiguration
from draftmill.settings_file import read_document, read_mapping

LEVELS = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 13)]


def told(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(BadConfiguration) as caught:
        read_document(path, code="a.file", example="none")
    return str(caught.value).replace(f"{path}, ", "").splitlines()


def test_aliases_are_told_by_their_lines_and_never_followed(tmp_path: Path) -> None:
    bomb = told(tmp_path, "\n".join(["a0: &a0 [x]", *LEVELS]))  # 9 ** 12 items, if it were
    assert bomb[0] == "line 2, *a0: is an alias; write out what it is for"
    assert len(bomb) == 12
    for text in ("a: &x [*x]", "a: &x {}\nb: {<<: *x}", "a: &x text\nb: *x"):
        assert "*x: is an alias" in told(tmp_path, text)[0]


def test_an_anchor_that_nothing_names_and_a_star_in_a_text_are_no_alias(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('a: &x [amd/*, "*.bin"]  # *x\n')
    assert dict(read_document(tmp_path / "a.yaml", code="a.file", example="none")) == {"a": ["amd/*", "*.bin"]}


def test_what_is_too_deep_cannot_be_read(tmp_path: Path) -> None:
    assert "nested more than 50 deep" in told(tmp_path, "a: " + "[" * 60 + "]" * 60)[0]
    assert "cannot be read" in told(tmp_path, "a: " + "[" * 20_000 + "]" * 20_000)[0]


def test_a_key_given_twice_is_told_with_all_else_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("devices:\n  a: 1\n  b: 2\n  a: 3\n")
    found = read_document(path, code="a.file", example="none")
    assert found["devices"] == {"a": "3", "b": "2"}
    lines = found.explain([(("devices", "a"), "is wrong"), (("devices", "b"), "is wrong")]).splitlines()
    assert [line.removeprefix(f"{path}, ") for line in lines] == [
        "line 3, devices.b: is wrong",
        "line 4, devices.a: given twice",
        "line 4, devices.a: is wrong",
    ]
    with pytest.raises(BadConfiguration, match=r"line 4, devices[.]a: given twice"):
        read_mapping(path, "devices")
