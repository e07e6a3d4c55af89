"""Parameters and bytes predicted from config.json, against published numbers and files that other tools wrote."""

import pytest
from gguf.constants import GGMLQuantizationType as T

from draftmill.gguf.size_prediction import Size, expected_tensors, predict
from draftmill.outcome import Refused
from tests.support.checkpoints import config, tensor_shapes

QWEN3_06B = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
QWEN25_05B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "head_dim": None,
}
LLAMA32_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "rope_scaling": {"rope_type": "llama3", "factor": 32.0},
}


def predicted(cfg, head, rule):
    tensors = expected_tensors(cfg, head)
    return predict(tensors, {tensor.name: rule(tensor.name, tensor.shape) for tensor in tensors})


def f16(name: str, shape: tuple[int, ...]) -> T:
    return T.F32 if len(shape) == 1 else T.F16


def q4_k_m(name: str, shape: tuple[int, ...]) -> T:
    """The mix as it was read out of llama-quantize's file for 28 layers and an own head."""
    if len(shape) == 1:
        return T.F32
    part = name.split(".")
    if name == "output.weight":
        return T.Q6_K
    if part[0] == "blk" and part[2] in ("attn_v", "ffn_down"):
        layer, n = int(part[1]), 28
        if layer < n // 8 or layer >= 7 * n // 8 or (layer - n // 8) % 3 == 2:
            return T.Q6_K
    return T.Q4_K


@pytest.mark.parametrize(
    ("architecture", "sizes", "head", "parameters"),
    [
        ("Qwen3ForCausalLM", QWEN3_06B, "own", 751_632_384),
        ("Qwen3ForCausalLM", QWEN3_06B, "shared", 596_049_920),
        ("LlamaForCausalLM", LLAMA32_1B, "own", 1_498_482_688),
        ("Qwen2ForCausalLM", QWEN25_05B, "own", 630_167_424),
    ],
)
def test_parameters_are_the_published_counts(architecture, sizes, head, parameters):
    assert predicted(config(architecture, **sizes), head, f16).parameters == parameters


def test_bytes_are_those_of_the_files_that_the_stock_tools_wrote():
    # The stock converter's 1,509,346,976 bytes and llama-quantize's 484,219,552 have the same keys and tensor list, so
    # what the prediction leaves for the header must be the same number.
    cfg = config("Qwen3ForCausalLM", **QWEN3_06B)
    header = 1_509_346_976 - predicted(cfg, "own", f16).data_bytes
    quantized_header = 484_219_552 - predicted(cfg, "own", q4_k_m).data_bytes
    assert 5_900_000 < header < 6_000_000
    assert quantized_header == header


def test_types_and_padding_add_up_by_hand():
    # hidden 64: a norm is 256 bytes, a Q8_0 row of 64 is 2 blocks of 34 bytes, so 3 rows are 204, padded to 224.
    cfg = config("LlamaForCausalLM", hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
                 num_key_value_heads=1, vocab_size=3)  # fmt: skip
    prediction = predicted(cfg, "shared", lambda n, s: T.F32 if len(s) == 1 else T.Q8_0)
    assert prediction.data_bytes == 3 * 256 + 224 + 7 * 64 * 68
    assert prediction.parameters == 3 * 64 + 3 * 64 + 7 * 64 * 64


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_of_a_checkpoint_has_its_place(architecture, tied):
    cfg = config(architecture, tie_word_embeddings=tied)
    assert {t.source: t.shape for t in expected_tensors(cfg, "shared" if tied else "own")} == tensor_shapes(cfg)


def test_a_configuration_without_a_size_is_refused():
    cfg = config("LlamaForCausalLM", intermediate_size=None)
    with pytest.raises(Refused, match="intermediate_size"):
        expected_tensors(cfg, "shared")


def test_megabytes_and_mebibytes_are_both_named():
    assert str(Size(484_219_552)) == "484.2 MB (461.8 MiB)"
