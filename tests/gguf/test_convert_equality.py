"""The native converter writes what llama.cpp's converter writes: every tensor byte, every key but those of origin."""

import re
from contextlib import ExitStack

import numpy as np
import pytest

from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.header import map_tensor, read_header
from draftmill.gguf.merged_folder import merged_folder
from draftmill.gguf.metadata import ORIGIN, Provenance
from flows.demo.smollm2 import DONOR, DRAFT, build_hub
from tests.gguf.convert_models import write_models
from tests.support.inputs import smollm2_gguf
from tests.support.stock import convert_with_stock

ORIGIN_KEYS = re.compile(
    r"general\.(name|author|version|organization|finetune|basename|size_label|license(\..+)?|url|repo_url|tags|languages"
    r"|source\..+|base_model\..+)|draftmill\..+"
)
"""The keys in which the two may differ, spelled out: what conversion cannot know but from the outside."""


def keys(header):
    """[(key, types, value)] in the file's order, without the keys of origin."""
    return [(k, header.types[k], value) for k, value in header.fields.items() if not ORIGIN_KEYS.fullmatch(k)]


def differences(ours, theirs):
    """What differs between two GGUF files, [] when nothing does."""
    a, b = read_header(ours), read_header(theirs)
    left, right = keys(a), keys(b)
    found = [f"key {x[0]} / {y[0]}" for x, y in zip(left, right, strict=False) if x != y]
    if len(left) != len(right):
        found.append(f"keys {[key[0] for key in left]} / {[key[0] for key in right]}")
    if list(a.tensors) != list(b.tensors):
        return [*found, f"tensors {list(a.tensors)} / {list(b.tensors)}"]
    for x, y in zip(a.tensors.values(), b.tensors.values(), strict=True):
        same = (x.type, x.shape) == (y.type, y.shape)
        if not same or not np.array_equal(map_tensor(ours, x), map_tensor(theirs, y)):
            found.append(f"tensor {x.name}")
    return found


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """{model's name: (native file, stock file)}."""
    root = tmp_path_factory.mktemp("convert")
    build_hub(smollm2_gguf(), root / "hub")
    made, jobs = {}, []
    with ExitStack() as scratch:
        for model, tokenizer, outtype in write_models(root, root / "hub" / DRAFT, root / "hub" / DONOR):
            ours, theirs = root / f"{model.name}-native.gguf", root / f"{model.name}-stock.gguf"
            convert_native(model, tokenizer, ours, outtype=outtype, provenance=Provenance(name=model.name), threads=2)
            jobs.append((scratch.enter_context(merged_folder(model, tokenizer, model.name)), theirs, outtype))
            made[model.name] = ours, theirs
        convert_with_stock(jobs)
    return made


@pytest.mark.stock
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("SmolLM2-135M-Draft", id="the real model with a borrowed tokenizer"),
        pytest.param("qwen3-sharded", id="qwen3, bf16, untied, three parts"),
        pytest.param("qwen2-tied", id="qwen2, f16, tied, biases, hidden 224, no head_dim"),
        pytest.param("llama-rope", id="llama, f32, llama3 rope, sampling defaults"),
        pytest.param("qwen3-yarn", id="qwen3, f32, tied, yarn"),
        pytest.param("llama-biased", id="llama, every bias, linear rope, to f32"),
        pytest.param("qwen2-deepseek", id="qwen2, deepseek's special tokens, a bos in front"),
    ],
)
def test_native_and_stock_files_are_equal(pairs, name):
    assert differences(*pairs[name]) == []


@pytest.mark.stock
def test_the_comparison_sees_one_changed_bit_and_one_changed_key(pairs, tmp_path):
    ours, theirs = pairs["qwen3-yarn"]
    raw = bytearray(theirs.read_bytes())
    tensor = list(read_header(theirs).tensors.values())[3]
    raw[tensor.offset] ^= 1
    raw[raw.index(b"tokenizer.ggml.bos_token_id") + 27 + 4] ^= 1
    changed = tmp_path / "changed.gguf"
    changed.write_bytes(raw)
    assert differences(ours, changed) == [
        "key tokenizer.ggml.bos_token_id / tokenizer.ggml.bos_token_id",
        f"tensor {tensor.name}",
    ]


def test_the_library_excepts_the_same_keys_as_this_test():
    standing = ["general.architecture", "general.type", "general.file_type", "general.quantization_version"]
    standing += ["general.alignment", "general.sampling.top_k", "qwen3.block_count", "tokenizer.ggml.model"]
    origin = ["general.name", "general.license", "general.base_model.0.name", "general.source.url", "draftmill.recipe"]
    assert [bool(ORIGIN.match(key)) for key in standing + origin] == [False] * 8 + [True] * 5
    assert [bool(ORIGIN_KEYS.fullmatch(key)) for key in standing + origin] == [False] * 8 + [True] * 5
