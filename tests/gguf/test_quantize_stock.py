import gguf
import pytest

from draftmill.gguf.quantize_native import quantize_native
from draftmill.gguf.quantize_stock import find_quantizer, parse_fallbacks, quantize_stock
from draftmill.outcome import BadConfiguration, MillError, Refused, Temporary
from tests.gguf.quantize_models import write_model
from tests.support.stock import llama_quantize

PRINTED = """\
llama_quantize: quantizing 'a' to 'b' as Q4_K_M using 2 threads
warning: blk.0.attn_k.weight                  - ncols    576 not divisible by 256 (required for type    q4_K) -> falling back to    q5_0
warning: output.weight   - ncols    528 not divisible by  32 (required for type    q8_0) (WARNING: must use F16 due to unusual shape) -> falling back to     f16
llama_model_quantize_impl: WARNING: 13 of 21 tensor(s) required fallback quantization
"""  # noqa: E501


def test_fallback_warnings_become_fallbacks():
    first, second = parse_fallbacks(PRINTED.splitlines())
    assert first.as_json() == {
        "tensor": "blk.0.attn_k.weight",
        "wanted": "Q4_K",
        "got": "Q5_0",
        "why": "rows of 576 do not divide into blocks of 256",
    }
    assert (second.tensor, second.wanted, second.got) == ("output.weight", "Q8_0", "F16")


@pytest.mark.parametrize("command", [["/nowhere/llama-quantize"], ["/bin/true"]])
def test_a_program_that_is_not_llama_quantize_is_a_configuration_error(command):
    with pytest.raises(BadConfiguration) as caught:
        find_quantizer(command)
    assert caught.value.code == "quantize.stock_unusable"


def test_none_on_the_path_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadConfiguration) as caught:
        find_quantizer()
    assert caught.value.code == "quantize.stock_missing"


@pytest.fixture
def quantizer():
    return find_quantizer(llama_quantize())


@pytest.fixture
def source(tmp_path):
    write_model(tmp_path / "s.gguf", "llama", hidden=576, heads=9, kv_heads=3, ffn=1536, tied=True)
    return tmp_path / "s.gguf"


@pytest.mark.stock
def test_any_type_is_made_and_its_fallbacks_are_those_of_the_native_quantizer(tmp_path, quantizer, source):
    seen = []
    done = quantize_stock(
        quantizer,
        source,
        tmp_path / "t.gguf",
        "Q4_K_M",
        progress=lambda what, at, total: seen.append((what, at, total)),
    )
    native = quantize_native(source, tmp_path / "n.gguf", "Q4_K_M")
    # The tied head's Q8_0 is not announced by the tool.
    assert sorted(done.fallbacks, key=str) == sorted(native.fallbacks[1:], key=str)
    assert seen[-1] == ("blk.1.ffn_up.weight", 20, 20)
    assert done.version and "quantizing" in done.log
    assert (tmp_path / "t.gguf").read_bytes() == (tmp_path / "n.gguf").read_bytes()
    quantize_stock(quantizer, source, tmp_path / "q3.gguf", "Q3_K_M")
    assert gguf.GGUFReader(tmp_path / "q3.gguf").fields["general.file_type"].contents() == 12


@pytest.mark.stock
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("IQ2_XXS", "quantize.needs_imatrix"),
        ("Q9_X", "quantize.type_unknown"),
        ("--help", "quantize.type_unknown"),
    ],
)
def test_types_that_cannot_be_made_are_refused_and_nothing_is_left(tmp_path, quantizer, source, kind, code):
    with pytest.raises(Refused) as caught:
        quantize_stock(quantizer, source, tmp_path / "t.gguf", kind)
    assert [refusal.code for refusal in caught.value.refusals] == [code]
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]


@pytest.mark.stock
def test_quantized_input_is_refused_before_the_tool_starts(tmp_path, quantizer, source):
    quantize_native(source, tmp_path / "q8.gguf", "Q8_0")
    with pytest.raises(Refused, match=r"quantize\.requantizing"):
        quantize_stock(quantizer, tmp_path / "q8.gguf", tmp_path / "t.gguf", "Q4_K_M")


@pytest.mark.stock
def test_a_run_that_takes_too_long_is_ended_and_nothing_is_left(tmp_path, quantizer, source):
    with pytest.raises(Temporary) as caught:
        quantize_stock(quantizer, source, tmp_path / "t.gguf", "Q4_K_M", timeout_s=0.01)
    assert caught.value.code == "quantize.stock_timeout"
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]


@pytest.mark.stock
def test_a_model_that_the_tool_does_not_load_fails_with_its_last_words(tmp_path, quantizer):
    writer = gguf.GGUFWriter(tmp_path / "s.gguf", "no-such-architecture")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(MillError, match="unknown model architecture") as caught:
        quantize_stock(quantizer, tmp_path / "s.gguf", tmp_path / "t.gguf", "Q4_K_M")
    assert caught.value.code == "quantize.stock_failed"


@pytest.mark.stock
def test_a_file_that_the_tool_pads_wrongly_is_not_delivered(tmp_path, quantizer):
    write_model(tmp_path / "s.gguf", "llama", hidden=288, head=72, alignment=64)
    with pytest.raises(MillError, match="offset_unaligned") as caught:
        quantize_stock(quantizer, tmp_path / "s.gguf", tmp_path / "t.gguf", "Q8_0")
    assert caught.value.code == "quantize.stock_unreadable"
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]
    quantize_native(tmp_path / "s.gguf", tmp_path / "n.gguf", "Q8_0")
    assert {tensor.data_offset % 64 for tensor in gguf.GGUFReader(tmp_path / "n.gguf").tensors} == {0}
