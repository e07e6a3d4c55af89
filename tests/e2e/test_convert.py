"""A whole conversion, as a user runs it."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from draftmill.gguf.header import map_tensor, read_header
from tests.e2e.mill import DONOR, DRAFT, PLAIN, Mill, MillMaker, jobs_run, published_files, write_tiny
from tests.support.keys import key_pair
from tests.support.stock import llama_quantize, stock_converter

QUANTS = ("--quant", "Q4_K_M", "--quant", "Q8_0")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, hub: str, prefect_state: Path) -> tuple[Mill, dict[str, Any]]:
    """One conversion, and how it ended. Its work folder spares others what they share with it; its store stays so."""
    root = tmp_path_factory.mktemp("published")
    here = Mill(root / "work", str(root / "store"), hub)
    code, ending, err = here.run("convert", PLAIN, *QUANTS, "--json")
    assert (code, err) == (0, "")
    return here, ending


@pytest.fixture
def further(published: tuple[Mill, dict[str, Any]], mill: MillMaker) -> Mill:
    """The same work folder and a store of the test's own."""
    here = mill()
    here.work = published[0].work
    return here


def test_a_drafter_is_published_with_its_evidence_and_a_second_run_does_nothing(
    published: tuple[Mill, dict[str, Any]],
) -> None:
    here, ending = published
    assert ending["kind"] == "published"
    files = published_files(Path(here.store))
    models = sorted(Path(name).name for name in files if name.endswith(".gguf"))
    assert [name.rpartition("-")[2] for name in models] == ["F16.gguf", "Q4_K_M.gguf", "Q8_0.gguf"]
    manifest = json.loads(next(Path(here.store).rglob("manifest.json")).read_text())
    assert manifest["source"]["repo"] == PLAIN
    assert manifest["licence"]["id"] == "Apache-2.0"
    assert any("49200" in sentence for sentence in manifest["cannot"])
    keys = read_header(next(path for name, path in files.items() if name.endswith("Q4_K_M.gguf"))).fields
    assert keys["draftmill.pard_token"] == 49200
    assert keys["draftmill.recipe"] == manifest["recipe"]
    assert keys["draftmill.source.commit"] == manifest["source"]["commit"]

    rows = json.loads((Path(here.store) / "index.json").read_text())["rows"]
    assert [(row["entry"], row["verdict"]) for row in rows] == [(PLAIN, "pass")]
    assert PLAIN in (Path(here.store) / "index.html").read_text()

    code, again, err = here.run("convert", PLAIN, *QUANTS, "--json")
    assert (code, err) == (0, "")
    assert again["kind"] == "already published"
    assert again["manifest_at"] == ending["manifest_at"]
    assert jobs_run(again) == []


def test_a_repository_of_weights_alone_is_refused_until_a_donor_is_named(
    mill: MillMaker, hub_folder: Path, tmp_path: Path
) -> None:
    here = mill()
    code, ending, _ = here.run("convert", DRAFT, "--json")
    assert code == 1
    assert [refusal["code"] for refusal in ending["refusals"]] == ["tokenizer.weights_only"]
    assert "--tokenizer-from" in ending["refusals"][0]["sentence"]
    assert published_files(tmp_path / "store") == {}

    code, ending, _ = here.run("convert", DRAFT, "--tokenizer-from", DONOR, "--json")
    assert (code, ending["kind"]) == (0, "published")
    assert ending["manifest"]["donor"]["source"]["repo"] == DONOR
    assert not any(title.startswith(f"download {DRAFT}") for title in jobs_run(ending)), (
        "the weights were there already"
    )


def test_a_changed_question_runs_only_what_it_changes_and_explains_why(further: Mill) -> None:
    code, ending, err = further.run("convert", PLAIN, "--quant", "Q8_0", "--base", "BF16", "--json", "--explain")
    assert code == 0
    assert jobs_run(ending) == ["convert to BF16", "quantize to Q8_0", "check BF16", "check Q8_0"]
    assert "parameters.outtype" in err
    assert "skipped, finished before with the same key" in err


def test_a_folder_is_converted_like_a_repository(mill: MillMaker, hub_folder: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "My-Draft", hub_folder / DONOR)
    code, ending, err = mill().run("convert", str(tmp_path / "My-Draft"), "--quant", "Q8_0", "--json")
    assert (code, err) == (0, "")
    assert ending["manifest"]["entry"] == "local/My-Draft"


def test_what_the_hub_does_not_have_is_a_sentence_and_not_a_traceback(mill: MillMaker) -> None:
    code, ending, err = mill().run("convert", "tiny/No-Such-Draft", "--json")
    assert code == 1
    assert "Traceback" not in err
    assert ending["refusals"][0]["where"].startswith("tiny/No-Such-Draft")


def test_one_recipe_gives_one_content(published: tuple[Mill, dict[str, Any]], mill: MillMaker) -> None:
    other = mill()
    assert other.run("convert", PLAIN, *QUANTS)[0] == 0
    one, two = (
        {path: file.read_bytes() for path, file in published_files(Path(here.store)).items()}
        for here in (published[0], other)
    )
    assert one == two
    assert len(one) > len(QUANTS)


@pytest.mark.stock
def test_the_stock_tools_make_the_same_tensors(
    published: tuple[Mill, dict[str, Any]], mill: MillMaker, tmp_path: Path
) -> None:
    converter, quantizer = stock_converter(), tmp_path / "llama-quantize"
    quantizer.write_text(f'#!/bin/sh\nexec {shlex.join(llama_quantize())} "$@"\n')
    quantizer.chmod(0o755)
    stock = (
        "--converter",
        "stock",
        "--stock-converter",
        str(converter.script),
        "--stock-python",
        str(converter.python),
    )
    stock += ("--quantizer", "stock", "--llama-quantize", str(quantizer))
    code, by_stock, err = mill().run("convert", PLAIN, "--quant", "Q4_K_M", "--json", *stock)
    assert code == 0, (err, by_stock)
    found = []
    for ending in (published[1], by_stock):
        place = Path(next(place for name, place in ending["places"].items() if name.endswith("Q4_K_M.gguf")))
        tensors = read_header(place).tensors.values()
        found.append({tensor.name: (tensor.type, bytes(map_tensor(place, tensor))) for tensor in tensors})
    assert found[0] == found[1]


def test_wrong_usage_ends_with_2_and_before_anything_starts(mill: MillMaker) -> None:
    here = mill()
    for wrong in (("--quant", "Q9_9"), ("--licence-file", "/no/such/file"), ("--base", "Q8_0")):
        code, _, err = here.run("convert", PLAIN, *wrong)
        assert code == 2
        assert "Traceback" not in err
    assert not here.work.exists()


def test_a_licence_that_contradicts_the_repository_is_refused_without_a_statement(further: Mill) -> None:
    code, ending, _ = further.run("convert", PLAIN, "--quant", "Q8_0", "--licence", "mit", "--json")
    assert code == 1
    assert [refusal["code"] for refusal in ending["refusals"]] == ["publish.licence_contradicts"]


def test_a_failure_is_json_too(mill: MillMaker) -> None:
    code, ending, _ = mill(HF_ENDPOINT="http://127.0.0.1:9").run(
        "convert", PLAIN, "--hub", "http://127.0.0.1:9", "--json"
    )
    assert (code, ending["kind"]) == (1, "failed")


def test_what_a_llama_was_made_into_is_published_with_its_terms_signed_or_not_at_all(
    mill: MillMaker, tmp_path: Path
) -> None:
    """Its card names Apache-2.0. Refused with all that lacks; then published, signed, pulled and verified."""
    here = mill()
    pair = key_pair(tmp_path)
    question = ["convert", PLAIN, "--quant", "Q8_0", "--derived-from", "meta-llama/Llama-3.2-1B", "--json"]
    code, ending, _ = here.run(*question)
    assert code == 1
    told = {refusal["code"]: refusal["sentence"] for refusal in ending["refusals"]}
    assert set(told) == {"store.agreement_missing", "store.name_rule"}
    assert "inherited from meta-llama/Llama-3.2-1B" in told["store.agreement_missing"]
    assert published_files(tmp_path / "store") == {}

    agreement = tmp_path / "LICENSE.txt"
    agreement.write_text("LLAMA 3.2 COMMUNITY LICENSE AGREEMENT\nterms\n")
    question += ["--licence-text", f"llama3.2={agreement}", "--name", "tiny/Llama-PARD-1M"]
    code, ending, err = here.run(*question, "--sign-key", str(pair.private))
    assert (code, ending["kind"]) == (0, "published"), err
    manifest = ending["manifest"]
    assert [each["licence"] for each in manifest["obligations"]] == ["llama3.2"]
    assert manifest["parameters"]["derived_from"] == ["meta-llama/Llama-3.2-1B"]
    assert ("meta-llama/Llama-3.2-1B", "llama3.2") in [(each["name"], each["licence"]) for each in manifest["lineage"]]
    assert {"LICENSE-llama3.2.txt", "NOTICE"} <= {file["path"] for file in manifest["files"]}
    models = [file["path"] for file in manifest["files"] if file["role"] == "model"]
    assert models and all(name.startswith("Llama-") for name in models)

    out = str(tmp_path / "pulled")
    public = ["--public-key", str(pair.public)]
    code, pulled, err = here.run("pull", "tiny/Llama-PARD-1M", "-o", out, *public, "--json")
    assert (code, pulled["signed"], pulled["notices"]) == (0, True, ["Built with Llama"]), err
    assert here.run("verify", out, *public)[0] == 0
    assert read_header(tmp_path / "pulled" / models[0]).fields["general.name"] == "Llama PARD 1M"
    assert "Terms that bind: llama3.2" in (tmp_path / "pulled" / "draftmill-notices.txt").read_text()
    secret = str(pair.private).encode()
    written = [
        path for place in ("store", "work", "pulled") for path in (tmp_path / place).rglob("*") if path.is_file()
    ]
    assert not [path for path in written if secret in path.read_bytes()]
