"""The checkpoint's rows in the product's order, and Llama 3's rotary factors."""

import numpy as np
import pytest

from draftmill.gguf.product_check_reference import Checkpoint, rope_factors
from draftmill.gguf.size_prediction import ExpectedTensor, expected_tensors
from tests.support.checkpoints import config, write_checkpoint

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 40,
}


def read(checkpoint: Checkpoint, tensor: ExpectedTensor, step: int) -> np.ndarray:
    rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
    parts = [checkpoint.rows(tensor, i, min(rows, i + step)) for i in range(0, rows, step)]
    return np.concatenate(parts).reshape(tensor.shape)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_are_the_published_values_in_any_portions(dtype, shards, tmp_path):
    from safetensors import deserialize

    cfg = write_checkpoint(tmp_path, "Qwen3ForCausalLM", tokenizer=None, dtype=dtype, shards=shards, **SIZES)
    checkpoint = Checkpoint(tmp_path, cfg)
    truth = {}
    for path in tmp_path.glob("*.safetensors"):
        for name, entry in deserialize(path.read_bytes()):
            values = np.frombuffer(entry["data"], {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[dtype])
            if dtype == "BF16":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            truth[name] = values.astype(np.float32).reshape(entry["shape"])
    for tensor in expected_tensors(cfg, "own"):
        assert np.array_equal(read(checkpoint, tensor, 7), truth[tensor.source]), tensor.name
    checkpoint.close()


def test_llama_heads_are_turned_as_llama_cpp_stores_them(tmp_path):
    cfg = write_checkpoint(tmp_path, "LlamaForCausalLM", tokenizer=None, dtype="F32", **SIZES)
    checkpoint = Checkpoint(tmp_path, cfg)
    tensors = {tensor.name: tensor for tensor in expected_tensors(cfg, "own")}
    query = tensors["blk.0.attn_q.weight"]
    plain = ExpectedTensor(query.name, query.shape, query.source)
    turned, original = read(checkpoint, query, 16), read(checkpoint, plain, 64)
    # Head 1 of 16 rows: its pair j is row j and row j + 8 of the checkpoint's head.
    for j in range(8):
        assert np.array_equal(turned[16 + 2 * j], original[16 + j])
        assert np.array_equal(turned[16 + 2 * j + 1], original[16 + j + 8])
    assert np.array_equal(read(checkpoint, query, 32), turned)
    value = tensors["blk.0.attn_v.weight"]
    assert value.heads == 0
    checkpoint.close()


def test_rotary_factors_are_llama_3s():
    # Head 128, base 500000, factor 8 over 8192 tokens (Llama 3.1): wavelength 2 pi 500000^(2i/128). Below 8192/4 a
    # frequency is left alone (i <= 28), above 8192/1 divided by 8 (i >= 35); at i = 32 it is 4442.9, so
    # (8192/4442.9 - 1)/3 = 0.2813 of it is kept: 1/(0.7187/8 + 0.2813) = 2.6944.
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192}  # fmt: skip
    factors = rope_factors(config("LlamaForCausalLM", head_dim=128, rope_theta=500000.0, rope_scaling=rope))
    assert factors.shape == (64,)
    assert factors.dtype == np.float32
    assert (factors[:29] == 1).all()
    assert (factors[35:] == 8).all()
    assert ((factors[29:35] > 1) & (factors[29:35] < 8)).all()
    assert factors[32] == pytest.approx(2.6944, abs=1e-3)
