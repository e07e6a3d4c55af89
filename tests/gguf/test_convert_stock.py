"""The stock converter as a subprocess: its failures explained, its environment bare, its output given our keys."""

import json
import sys
from pathlib import Path

import pytest

from draftmill.gguf.convert_stock import convert_stock
from draftmill.gguf.header import read_header
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stock_failures import explain
from draftmill.gguf.stock_script import StockScript, stock_script
from draftmill.outcome import BadConfiguration, InputOutput, MillError, Refused, Temporary
from jobs.contract import perform
from jobs.convert import work
from tests.gguf.convert_models import write_tiny_model
from tests.support.processes import with_arguments
from tests.support.stock import stock_converter
from tests.support.waiting import GUARD_S, until

NAME = Provenance(name="Tiny-Draft")


@pytest.fixture
def model(tmp_path):
    write_tiny_model(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def program(tmp_path):
    """A stand-in converter made of the given Python code."""

    def make(code):
        path = tmp_path / "convert_hf_to_gguf.py"
        path.write_text(code)
        return StockScript(path, sys.executable)

    return make


def run(model, tmp_path, script, **options):
    out = tmp_path / "out"
    out.mkdir()
    log = tmp_path / "convert.log"
    return convert_stock(
        model, model, out / "x.gguf", outtype="f16", provenance=NAME, script=script, log=log, **options
    )


@pytest.mark.parametrize(
    ("log", "kind", "code"),
    [
        ("ModuleNotFoundError: No module named 'torch'", BadConfiguration, "convert.stock_unusable"),
        ("ModuleNotFoundError: No module named 'conversion'", BadConfiguration, "convert.stock_unusable"),
        ("Error: Missing /tmp/draftmill-a/model/tokenizer.model", Refused, "convert.tokenizer_missing"),
        ("FileNotFoundError: File not found: /tmp/m/tokenizer.model", Refused, "convert.tokenizer_missing"),
        ("OSError: [Errno 28] No space left on device", InputOutput, "convert.no_space"),
        ("WARNING:hf-to-gguf:** chkhsh:  " + "a" * 64, Refused, "convert.pre_tokenizer_unknown"),
        ("ValueError: Can not map tensor 'model.layers.0.x'", Refused, "convert.tensor_unknown"),
        ("ERROR:hf-to-gguf:Model FooForCausalLM is not supported", Refused, "convert.architecture"),
        ("ValueError: Missing or incomplete model files: ['a.safetensors']", Refused, "convert.tensor_missing"),
        ("TypeError: expected str, bytes or os.PathLike object, not NoneType", Refused, "convert.tokenizer_unreadable"),
        ("ZeroDivisionError: division by zero", MillError, "convert.stock_failed"),
    ],
)
def test_a_known_failure_becomes_its_cause(log, kind, code):
    error = explain(1, ["INFO:hf-to-gguf:Loading model", "Traceback (most recent call last):", log])
    assert type(error) is kind and error.code == code


def test_an_unknown_failure_keeps_the_converters_last_words():
    assert "division by zero" in str(explain(1, ["ZeroDivisionError: division by zero"]))


def test_a_converter_that_the_system_ended_may_be_tried_again():
    assert isinstance(explain(-9, []), Temporary)


def test_a_failed_run_leaves_its_log_and_nothing_else(model, tmp_path, program):
    script = program(
        "import sys\nfor i in range(50): print('line', i)\nsys.exit('ValueError: Can not map tensor \\'z\\'')"
    )
    with pytest.raises(Refused) as caught:
        run(model, tmp_path, script)
    assert caught.value.refusals[0].measured == "z"
    assert list((tmp_path / "out").iterdir()) == []
    assert "line 0\n" in (tmp_path / "convert.log").read_text()


@pytest.mark.timeout(GUARD_S)  # a child that lives on keeps the log open, and its end is waited for
def test_a_converter_that_hangs_is_ended_with_its_children(model, tmp_path, program):
    mark = str(tmp_path / "child")
    script = program(f"import subprocess\nsubprocess.run(['sh', '-c', 'sleep 600; true', {mark!r}])")
    with pytest.raises(Temporary) as caught:
        run(model, tmp_path, script, timeout_s=1.0)
    assert caught.value.code == "convert.stock_timeout"
    until(lambda: not with_arguments(mark), "the child ends")


def test_the_converter_sees_no_credentials_and_no_network_wish(model, tmp_path, program, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    script = program("import os, json, sys\nprint(json.dumps(dict(os.environ)))\nsys.exit(3)")
    with pytest.raises(MillError):
        run(model, tmp_path, script)
    seen = json.loads((tmp_path / "convert.log").read_text())
    assert "canary" not in seen.values() and seen["HF_HUB_OFFLINE"] == "1" and "HF_TOKEN" not in seen


def test_the_converter_gets_one_folder_named_like_the_repository(model, tmp_path, program):
    script = program("import os, sys\nprint(sys.argv[1].split('/')[-1], *sorted(os.listdir(sys.argv[1])))\nsys.exit(3)")
    with pytest.raises(MillError):
        run(model, tmp_path, script)
    assert (tmp_path / "convert.log").read_text().split() == [
        "Tiny-Draft",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_missing_tokenizer_is_told_before_the_converter_starts(model, tmp_path, program):
    (model / "tokenizer.json").unlink()
    with pytest.raises(Refused) as caught:
        run(model, tmp_path, program("raise SystemExit('started')"))
    assert caught.value.code == "convert.tokenizer_missing"
    assert not (tmp_path / "convert.log").exists()


def test_too_small_a_vocabulary_is_told_before_the_converter_starts(model, tmp_path, program):
    write_tiny_model(model, vocab_size=258)
    with pytest.raises(Refused) as caught:
        run(model, tmp_path, program("raise SystemExit('started')"))
    assert caught.value.code == "convert.tokenizer_rows"


def test_a_converter_that_is_not_there_is_a_wrong_setting(monkeypatch, tmp_path):
    monkeypatch.delenv("DRAFTMILL_STOCK_CONVERTER", raising=False)
    with pytest.raises(BadConfiguration) as caught:
        stock_script(None)
    assert caught.value.code == "convert.stock_missing"
    monkeypatch.setenv("DRAFTMILL_STOCK_CONVERTER", str(tmp_path / "absent.py"))
    with pytest.raises(BadConfiguration):
        stock_script(None)


def test_a_script_by_a_relative_path_runs_in_a_folder_of_its_own(model, tmp_path, program, monkeypatch):
    program("raise SystemExit('Model Foo is not supported')")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    script = stock_script("convert_hf_to_gguf.py", "bin/python")
    assert script.python == tmp_path / "bin" / "python"
    assert stock_script("convert_hf_to_gguf.py", "python3").python == Path("python3")
    with pytest.raises(Refused) as caught:
        run(model, tmp_path, script)
    assert caught.value.code == "convert.architecture"


def test_a_script_that_ends_well_and_writes_nothing_is_no_converter(model, tmp_path, program):
    with pytest.raises(BadConfiguration, match="wrote nothing") as caught:
        run(model, tmp_path, program("print('hello')"))
    assert caught.value.code == "convert.stock_unusable"


def test_the_digest_covers_the_packages_beside_the_script(tmp_path, program):
    script = program("pass")
    (tmp_path / "conversion").mkdir()
    (tmp_path / "conversion" / "base.py").write_text("a = 1")
    first = StockScript(script.path, script.python).digest
    (tmp_path / "conversion" / "base.py").write_text("a = 2")
    assert StockScript(script.path, script.python).digest != first


@pytest.mark.stock
@pytest.mark.slow
def test_the_job_gives_equal_files_by_both_converters_but_for_the_converters_name(tmp_path):
    from tests.gguf.test_convert_equality import differences
    from tests.support.checkpoints import write_checkpoint
    from tests.support.inputs import qwen3_tokenizer

    write_checkpoint(tmp_path / "model", tokenizer=None, hidden_size=64, intermediate_size=64, pard_token=151670)
    stock = stock_converter()
    tools = {"stock_converter": str(stock.script), "stock_python": str(stock.python)}
    provenance = {"name": "PARD-Tiny-0.1B", "repo": "amd/PARD-Tiny-0.1B", "commit": "c" * 40, "licence": "apache-2.0"}
    read = {}
    for converter, more in (("native", {}), ("stock", tools)):
        folder = tmp_path / converter
        folder.mkdir()
        parameters = {"converter": converter, "outtype": "f16", "provenance": provenance, "file_name": "x.gguf"}
        request = {
            "job": "convert",
            "inputs": {"model": str(tmp_path / "model"), "tokenizer": str(qwen3_tokenizer())},
            "parameters": parameters | more,
        }
        (folder / "request.json").write_text(json.dumps(request))
        result = perform("convert", work, folder)
        assert result.outcome == "ok", result.error
        assert [output.path for output in result.outputs] == ["x.gguf"]
        read[converter] = dict(read_header(folder / "out" / "x.gguf").fields)
    assert differences(tmp_path / "native" / "out" / "x.gguf", tmp_path / "stock" / "out" / "x.gguf") == []
    native, theirs = read["native"].pop("draftmill.converter"), read["stock"].pop("draftmill.converter")
    assert native.startswith("native ") and theirs.startswith("stock ")
    assert read["native"] == read["stock"] and read["native"]["draftmill.pard_token"] == 151670
