"""`draftmill dflash forward | pick | compare` on a package, and every bad array with a sentence of its own."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from draftmill.cli.dflash import app
from draftmill.cli.main import Verbs
from draftmill.dflash.forward import Draft
from draftmill.dflash.package import write
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.q4nx.encodings import Kind

draftmill = typer.Typer(cls=Verbs)
draftmill.add_typer(app, name="dflash")


@draftmill.callback()
def root() -> None:
    """As the command line mounts it."""


def run(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(draftmill, ["dflash", *map(str, words)], env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generation 2 package with features of 11 context rows, a block of 8, and logits of it."""
    place = tmp_path_factory.mktemp("given")
    config = synthetic_config(2)
    write(place / "draft", config, synthetic_tensors(config), encoding=Kind.Q4_K)
    rng = np.random.default_rng(0)
    np.save(place / "f.npy", rng.standard_normal((11, 768)).astype(np.float32))
    np.save(place / "b.npy", rng.standard_normal((8, 256)).astype(np.float16))
    np.save(place / "l.npy", rng.standard_normal((8, 512)))
    return place


def arguments(given: Path, **others: object) -> list[object]:
    named = {"features": given / "f.npy", "block": given / "b.npy"} | others
    return [
        given / "draft",
        *(word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", value)),
    ]


def test_steps_traces_and_a_dump_agree(given, tmp_path):
    code, out, err = run("forward", *arguments(given, out=tmp_path / "h.npy", trace=tmp_path / "t"))
    assert (code, err) == (0, "")
    assert "8 x 256 float32" in out and "intermediates" in out
    assert run("forward", *arguments(given, out=tmp_path / "steps.npy", cached_steps="6,5"))[0] == 0
    rows = np.load(tmp_path / "h.npy")
    assert np.array_equal(rows, np.load(tmp_path / "steps.npy"))
    with Draft.open(given / "draft") as draft:
        assert np.array_equal(rows, draft.forward(np.load(given / "f.npy"), np.load(given / "b.npy")))
    assert np.array_equal(np.load(tmp_path / "t" / "output.npy"), rows)
    code, out, err = run("compare", *arguments(given, against=tmp_path / "t"))
    assert (code, err) == (0, "") and "agrees: " in out
    # What another precision computes agrees within the tolerance, and not without one.
    assert run("compare", *arguments(given, against=tmp_path / "t", dtype="float64"))[0] == 0
    assert run("compare", *arguments(given, against=tmp_path / "t", dtype="float64", tolerance=0))[0] == 1


def test_a_block_of_another_size_is_computed_with_a_remark(given, tmp_path):
    short = tmp_path / "short.npy"
    np.save(short, np.load(given / "b.npy")[:3])
    code, out, _ = run("forward", *arguments(given, block=short, out=tmp_path / "h.npy"))
    assert code == 0 and "remark: --block has 3 rows and the draft works in blocks of 8" in out
    assert json.loads(run("forward", *arguments(given, block=short, out=tmp_path / "h.npy"), "--json")[1])["remarks"]
    assert "remark" not in run("forward", *arguments(given, out=tmp_path / "h.npy"))[1]


def test_a_dump_with_one_wrong_row_names_it(given, tmp_path):
    assert run("forward", *arguments(given, out=tmp_path / "h.npy", trace=tmp_path / "t"))[0] == 0
    rows = np.load(tmp_path / "t" / "layers.1.mlp.gated.npy")
    rows[5] *= 1.01
    np.save(tmp_path / "t" / "layers.1.mlp.gated.npy", rows)
    code, out, _ = run("compare", *arguments(given, against=tmp_path / "t"), "--json")
    value = json.loads(out)
    assert (code, value["verdict"]) == (1, "departs")
    assert value["sentence"] == "departs first at row 5 of layers.1.mlp.gated, above 0.001 relative RMS"
    assert [each["name"] for each in value["tensors"] if each["departs"] is not None] == ["layers.1.mlp.gated"]


def test_packed_weights_and_window_rules_are_options(given, tmp_path):
    for name, options in (("a", {}), ("b", {"weights": "packed"}), ("c", {"window": "ignored"}), ("d", {"start": 9})):
        assert run("forward", *arguments(given, out=tmp_path / f"{name}.npy", **options))[0] == 0
    whole, packed, ignored, later = (np.load(tmp_path / f"{name}.npy") for name in "abcd")
    assert np.abs(whole - packed).max() < 1e-5
    assert np.abs(whole - ignored).max() < 1e-6, "the window of 64 hides nothing here"
    assert np.abs(whole - later).max() < 1e-5


def test_picked_ids_are_the_walk(given, tmp_path):
    assert run("forward", *arguments(given, out=tmp_path / "h.npy"))[0] == 0
    words = [given / "draft", "--hidden", tmp_path / "h.npy", "--logits", given / "l.npy", "--anchor", 7]
    code, out, err = run("pick", *words, "--out", tmp_path / "ids.npy", "--json")
    assert (code, err) == (0, "")
    rows, logits = np.load(tmp_path / "h.npy")[1:], np.load(given / "l.npy")[1:].astype(np.float32)
    with Draft.open(given / "draft") as draft:
        expected = draft.walk(rows, logits, 7).tolist()
    assert json.loads(out)["ids"] == np.load(tmp_path / "ids.npy").tolist() == expected
    assert run("pick", *words[:-1], 512, "--out", tmp_path / "ids.npy")[0] == 1


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.unlink(), "dflash.array_missing"),
        (lambda path: path.write_bytes(b"\x93NUMPY nonsense"), "dflash.array_unreadable"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "dflash.array_unreadable"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "dflash.array_unreadable"),
        (lambda path: np.savez(path.open("wb"), a=np.zeros(3)), "dflash.array_unreadable"),
        (lambda path: np.save(path, np.array([{}], object), allow_pickle=True), "dflash.array_unreadable"),
        (lambda path: np.save(path, np.zeros((11, 768), np.int32)), "dflash.array_dtype"),
        (lambda path: np.save(path, np.zeros((11, 767), np.float32)), "dflash.array_shape"),
        (lambda path: np.save(path, np.zeros((0, 768), np.float32)), "dflash.array_shape"),
        (lambda path: np.save(path, np.full((11, 768), np.nan)), "dflash.array_not_finite"),
    ],
    ids=["absent", "nonsense", "cut", "two in one", "npz", "objects", "integers", "width", "no rows", "nan"],
)
def test_a_bad_array_is_refused_by_name_and_nothing_is_written(given, tmp_path, spoil, code):
    features = tmp_path / "f.npy"
    features.write_bytes((given / "f.npy").read_bytes())
    spoil(features)
    ended, out, _ = run("forward", *arguments(given, features=features, out=tmp_path / "h.npy"), "--json")
    assert (ended, json.loads(out)["code"]) == (1, code)
    assert not (tmp_path / "h.npy").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"cached_steps": "6,6"},
        {"cached_steps": "11,0"},
        {"cached_steps": "six"},
        {"dtype": "float16"},
        {"weights": "x"},
        {"window": "x"},
    ],
)
def test_another_word_is_wrong_usage(given, tmp_path, options):
    assert run("forward", *arguments(given, out=tmp_path / "h.npy", **options))[0] == 2
