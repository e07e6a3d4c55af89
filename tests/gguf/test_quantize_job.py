import json
import shutil

import pytest

from jobs.contract import perform
from jobs.quantize import work
from tests.gguf.quantize_models import write_model


@pytest.fixture
def run(tmp_path):
    (tmp_path / "in").mkdir()

    def _run(**parameters):
        request = {
            "job": "quantize",
            "inputs": {"gguf": str(tmp_path / "in")},
            "parameters": {"type": "Q4_K_M", "quantizer": "native", "name": "tiny-Q4_K_M"} | parameters,
        }
        (tmp_path / "request.json").write_text(json.dumps(request))
        return perform("quantize", work, tmp_path)

    _run.source = tmp_path / "in" / "tiny-F16.gguf"
    return _run


def test_a_native_run_states_types_fallbacks_and_tools(run):
    write_model(run.source, "llama", hidden=576, heads=9, kv_heads=3, ffn=1536, tied=True)
    result = run()
    assert (result.outcome, [output.path for output in result.outputs]) == ("ok", ["tiny-Q4_K_M.gguf"])
    assert result.facts["type"] == "Q4_K_M" and result.facts["fast_types"] == ["Q4_K", "Q6_K"]
    assert len(result.facts["fallbacks"]) == 13
    assert result.facts["fallbacks"][0]["tensor"] == "token_embd.weight"
    assert result.facts["tensor_types"]["blk.1.ffn_down.weight"] == "Q6_K"
    assert [tool.name for tool in result.tools] == ["xllamacpp", "numba"] and result.tools[0].digest


@pytest.mark.stock
def test_a_stock_run_gives_the_same_bytes(run, tmp_path):
    write_model(run.source)
    from tests.support.stock import llama_quantize

    program = tmp_path / "llama-quantize"
    program.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in llama_quantize()) + ' "$@"\n')
    program.chmod(0o755)
    native = run()
    stock = run(quantizer="stock", stock_quantizer=str(program))
    assert stock.outputs == native.outputs
    assert stock.facts["fallbacks"] == []
    assert stock.tools[0].name == "llama-quantize" and stock.tools[0].digest


def test_a_refusal_is_final_and_writes_nothing(run):
    write_model(run.source)
    result = run(type="IQ1_S")
    assert (result.outcome, result.exit_code, result.error_code) == ("refused", 65, "quantize.type_unknown")
    assert result.outputs == []


def test_two_models_in_the_input_are_refused(run):
    write_model(run.source)
    shutil.copy(run.source, run.source.with_name("other.gguf"))
    assert run().error_code == "quantize.one_gguf"


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"quantizer": "own"}, "quantize.quantizer"),
        ({"name": "../x"}, "quantize.name"),
        ({"name": ""}, "quantize.name"),
    ],
)
def test_parameters_that_make_no_sense_are_configuration_errors(run, parameters, code):
    write_model(run.source)
    result = run(**parameters)
    assert (result.exit_code, result.error_code) == (78, code)
