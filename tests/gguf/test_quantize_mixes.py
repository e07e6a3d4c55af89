"""The type rule, against lists worked out by hand from what llama-quantize prints."""

import pytest
from gguf.constants import GGMLQuantizationType as Type

from draftmill.gguf.mixes import MIXES, Matrix, choose_types, stock_order, unknown_tensors
from tests.gguf.quantize_models import shapes


def choose(
    mix: str, architecture: str = "qwen3", layers: int = 8, hidden: int = 256, tied: bool = False, ffn: int = 512
):
    names = shapes(architecture, hidden, layers, 4, 2, 64, ffn, 300, tied)
    tensors = {n: Matrix(s, Type.F32 if len(s) == 1 else Type.F16) for n, s in names.items()}
    return choose_types(MIXES[mix], architecture, layers, tensors)


def layers_with(choices, role: str, kind: Type) -> list[int]:
    return [int(n.split(".")[1]) for n, c in choices.items() if n.endswith(f".{role}.weight") and c.type == kind]


@pytest.mark.parametrize(
    ("layers", "better"),
    [
        (1, [0]),
        (2, [1]),
        (8, [0, 3, 6, 7]),
        (16, [0, 1, 4, 7, 10, 13, 14, 15]),
        (28, [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]),
    ],
)
@pytest.mark.parametrize(("mix", "bulk"), [("Q4_K_M", Type.Q4_K), ("Q5_K_M", Type.Q5_K)])
def test_k_mixes_give_some_layers_more_bits(layers, better, mix, bulk):
    choices = choose(mix, layers=layers)
    for role in ("attn_v", "ffn_down"):
        assert layers_with(choices, role, Type.Q6_K) == better
        assert layers_with(choices, role, bulk) == [i for i in range(layers) if i not in better]
    for role in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up"):
        assert layers_with(choices, role, bulk) == list(range(layers))


@pytest.mark.parametrize("mix", ["Q4_0", "Q8_0", "Q6_K", "F16", "BF16"])
def test_other_mixes_treat_all_layers_alike(mix):
    choices = choose(mix)
    assert layers_with(choices, "attn_v", MIXES[mix].bulk) == list(range(8))


@pytest.mark.parametrize(
    ("mix", "head"),
    [
        ("Q4_0", Type.Q6_K),
        ("Q4_K_M", Type.Q6_K),
        ("Q5_K_M", Type.Q6_K),
        ("Q6_K", Type.Q6_K),
        ("Q8_0", Type.Q8_0),
        ("F16", Type.F16),
        ("BF16", Type.BF16),
    ],
)
def test_head_is_better_than_bulk_and_a_tied_embedding_is_the_head(mix, head):
    untied, tied = choose(mix), choose(mix, tied=True)
    assert untied["output.weight"].type == head
    assert untied["token_embd.weight"].type == MIXES[mix].bulk
    assert tied["token_embd.weight"].type == head


def test_norms_and_biases_stay_as_they_are():
    choices = choose("Q4_K_M", architecture="qwen2")
    kept = {name for name, choice in choices.items() if choice.type == Type.F32}
    assert kept == {name for name in choices if name.endswith(("norm.weight", ".bias"))}


def test_a_matrix_of_one_row_stays_as_it_is():
    choices = choose_types(MIXES["Q8_0"], "llama", 1, {"blk.0.attn_k.weight": Matrix((1, 256), Type.F16)})
    assert choices["blk.0.attn_k.weight"].type == Type.F16


@pytest.mark.parametrize(
    ("mix", "bulk", "better"),
    [("Q4_K_M", Type.Q5_0, Type.Q8_0), ("Q5_K_M", Type.Q5_1, Type.Q8_0), ("Q6_K", Type.Q8_0, Type.Q8_0)],
)
def test_rows_of_576_fall_back_and_each_fallback_is_told(mix, bulk, better):
    choices = choose(mix, "llama", layers=2, hidden=576, tied=True)
    assert choices["blk.0.attn_q.weight"].type == bulk
    assert choices["blk.1.attn_v.weight"].type == better
    assert choices["token_embd.weight"].type == Type.Q8_0
    told = {name: choice.fallback for name, choice in choices.items() if choice.fallback}
    roles = ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
    assert set(told) == {"token_embd.weight"} | {f"blk.{i}.{role}.weight" for i in (0, 1) for role in roles}
    assert told["blk.0.attn_q.weight"].as_json() == {
        "tensor": "blk.0.attn_q.weight",
        "wanted": MIXES[mix].bulk.name,
        "got": bulk.name,
        "why": "rows of 576 do not divide into blocks of 256",
    }


def test_rows_that_no_block_divides_become_f16():
    choices = choose("Q4_K_M", "llama", layers=1, hidden=528, ffn=300)
    assert {c.type for c in choices.values()} == {Type.F16, Type.F32, Type.Q4_K}
    assert choices["blk.0.attn_output.weight"].type == Type.Q4_K  # its rows are 4 heads of 64
    assert choices["output.weight"].fallback.got == "F16"


def test_only_llama_and_qwen2_of_80_layers_get_more_for_attn_v():
    assert layers_with(choose("Q4_K_M", "llama", layers=80), "attn_v", Type.Q4_K) == []
    assert layers_with(choose("Q4_K_M", "qwen2", layers=80), "attn_v", Type.Q5_K)[:2] == [10, 11]
    assert layers_with(choose("Q4_K_M", "qwen3", layers=80), "attn_v", Type.Q5_K) == []
    assert layers_with(choose("Q4_K_M", "llama", layers=79), "attn_v", Type.Q5_K) == []


def test_tensors_are_ordered_by_layer_number_and_then_by_name():
    names = ["blk.10.a.weight", "blk.2.b.weight", "token_embd.weight", "blk.2.a.weight", "output.weight"]
    assert stock_order(names) == [
        "output.weight",
        "token_embd.weight",
        "blk.2.a.weight",
        "blk.2.b.weight",
        "blk.10.a.weight",
    ]


def test_names_without_a_rule_are_found():
    assert unknown_tensors(
        ["token_embd.weight", "blk.0.attn_qkv.weight", "blk.0.ffn_down_exps.weight", "mtp.weight"]
    ) == [
        "blk.0.attn_qkv.weight",
        "blk.0.ffn_down_exps.weight",
        "mtp.weight",
    ]
