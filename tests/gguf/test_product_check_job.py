"""The job `check`: what it writes and how it ends."""

import copy
import json
from pathlib import Path

import pytest
from gguf import GGMLQuantizationType as Type

from jobs.check import work
from jobs.contract import Request, Result, perform
from tests.support.products import Made, Product, make, write_tokenizer


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    folder = tmp_path_factory.mktemp("check")
    return make(folder / "model", write_tokenizer(folder / "tokenizer"), "Qwen3ForCausalLM")


def run(made: Made, folder: Path, *products: Product, **parameters: object) -> Result:
    (folder / "product").mkdir()
    for number, product in enumerate(products):
        product.write(folder / "product" / f"Tiny-{number}-Q8_0.gguf")
    inputs = {slot: folder / "product" for slot in ("source", "product")}
    inputs |= {"model": made.model, "tokenizer": made.tokenizer}
    request = Request(job="check", inputs=inputs, parameters=parameters)
    (folder / "request.json").write_text(request.model_dump_json())
    return perform("check", work, folder)


def test_a_right_product_passes_and_the_evidence_is_an_output(made, tmp_path):
    result = run(made, tmp_path, made.product, type="Q8_0")
    assert (result.outcome, [output.path for output in result.outputs]) == ("ok", ["check.json"])
    assert set(result.facts["check"].values()) == {"pass"}
    assert result.facts["lowest_cosine"] > 0.9999
    assert "MiB" in result.facts["file_size"]
    assert {tool.name for tool in result.tools} == {"xllamacpp", "tokenizers", "gguf"}
    assert next(tool for tool in result.tools if tool.name == "xllamacpp").digest
    evidence = json.loads((tmp_path / "out" / "check.json").read_text())
    assert evidence["verdict"] == "pass"
    weights = next(check for check in evidence["checks"] if check["check"] == "weights")
    assert len(weights["measured"]["tensors"]) == len(made.product.tensors)
    assert weights["limits"].keys() == {"tensor_ratio", "block_ratio"}


def test_a_spoiled_product_is_refused_with_every_finding_and_the_evidence_stays(made, tmp_path):
    product = copy.deepcopy(made.product)
    product.keys["qwen3.rope.freq_base"] = 10000.0
    product.tensors["blk.0.ffn_up.weight"] = (product.tensors["blk.1.ffn_up.weight"][0], Type.Q8_0)
    result = run(made, tmp_path, product, type="Q8_0")
    assert (result.outcome, result.exit_code) == ("refused", 65)
    assert [(r.code, r.where) for r in result.refusals] == [
        ("check.hyperparameter", "qwen3.rope.freq_base"),
        ("check.tensor_error", "blk.0.ffn_up.weight"),
    ]
    evidence = json.loads((tmp_path / "out" / "check.json").read_text())
    assert {c["check"] for c in evidence["checks"] if c["verdict"] == "refused"} == {"hyperparameters", "weights"}


def test_two_files_are_a_configuration_error(made, tmp_path):
    result = run(made, tmp_path, made.product, made.product, type="Q8_0")
    assert (result.exit_code, result.error_code) == (78, "check.files")


def test_a_request_without_a_type_is_a_configuration_error(made, tmp_path):
    result = run(made, tmp_path, made.product)
    assert (result.exit_code, result.error_code) == (78, "check.type")
