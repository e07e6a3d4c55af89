import pytest

from draftmill.hub.paths import check_paths, path_problem


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../config.json", "leaves the folder"),
        ("a/../../config.json", "leaves the folder"),
        ("..", "leaves the folder"),
        ("/etc/passwd", "is absolute"),
        ("C:model.bin", "is absolute"),
        ("a\\b.json", "holds a backslash"),
        ("a\nb.json", "holds a control or invisible character"),
        ("a\x00.json", "holds a control or invisible character"),
        ("config\u202e.json", "holds a control or invisible character"),
        ("", "has an empty part"),
        ("a//b", "has an empty part"),
        ("./config.json", "has an empty part"),
        ("a/", "has an empty part"),
        ("x" * 250, "is too long"),
        ("LICENSE.partial", "ends with .partial, which marks unfinished files"),
    ],
)
def test_a_path_that_is_not_plain_is_named_with_its_reason(path: str, problem: str) -> None:
    assert path_problem(path) == problem
    (finding,) = check_paths(["config.json", path])
    assert (finding.code, finding.where) == ("hub.path", path)


@pytest.mark.parametrize(
    "path", ["config.json", "model-00001-of-00002.safetensors", "onnx/model.onnx", ".gitattributes"]
)
def test_plain_paths_pass(path: str) -> None:
    assert path_problem(path) is None


def test_names_that_differ_only_in_case_are_one_file_elsewhere() -> None:
    (finding,) = check_paths(["LICENSE", "config.json", "License"])
    assert (finding.code, finding.measured) == ("hub.path_twice", ["LICENSE", "License"])


def test_every_finding_is_given() -> None:
    assert len(check_paths(["/a", "../b", "A", "a"])) == 3
