"""Whole checks of finished products: right ones pass, spoiled ones fail the checks that see it, and only those."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from draftmill.gguf.product_check import Inputs, ProductCheck, check_product
from draftmill.outcome import BadConfiguration, Refused
from tests.support.products import Made, Product, make, write_tokenizer

FFN = "blk.0.ffn_gate.weight"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory, tokenizer) -> Made:
    return make(tmp_path_factory.mktemp("llama"), tokenizer, "LlamaForCausalLM")


def check(made: Made, folder: Path, product: Product | None = None, kind: str = "Q8_0") -> ProductCheck:
    path = (product or made.product).write(folder / "product.gguf")
    return check_product(Inputs(path, path, made.model, made.tokenizer, kind))


def failing(result: ProductCheck) -> dict[str, set[str]]:
    """Check name -> the codes it found, for checks that found any."""
    return {r.name: {refusal.code for refusal in r.refusals} for r in result.results if r.refusals}


@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
@pytest.mark.parametrize(("kind", "tied"), [(Type.Q8_0, False), (Type.F16, True)])
def test_a_right_product_passes_every_check(architecture, kind, tied, tokenizer, tmp_path):
    made = make(tmp_path / "model", tokenizer, architecture, kind, tie_word_embeddings=tied)
    result = check(made, tmp_path, kind=kind.name)
    assert failing(result) == {}
    assert [r.name for r in result.results] == [
        "tensors",
        "size",
        "hyperparameters",
        "weights",
        "vocabulary",
        "tokenizing",
        "generation",
    ]
    json.loads(json.dumps(result.as_json(), allow_nan=False))


def wrong_type(product: Product) -> None:
    # F16 instead of Q8_0: nothing is lost, but it is not the mix, and the file grows.
    product.tensors[FFN] = (product.tensors[FFN][0], Type.F16)


def another_rope_base(product: Product) -> None:
    product.keys["llama.rope.freq_base"] = 10000.0


def halves_not_interleaved(product: Product) -> None:
    name = "blk.1.attn_q.weight"
    values, kind = product.tensors[name]
    product.tensors[name] = (np.roll(values, 1, axis=0), kind)


def scales_off_by_an_eighth(product: Product) -> None:
    def spoil(encoded: np.ndarray) -> np.ndarray:
        blocks = encoded.reshape(-1, 34).copy()
        scales = blocks[:, :2].copy().view("<f2") * np.float16(1.125)
        blocks[:, :2] = scales.astype("<f2").view(np.uint8)
        return blocks.reshape(encoded.shape)

    product.raw[FFN] = spoil


def one_scale_of_many_off(product: Product) -> None:
    # A twentieth on one block of 2048: far too little for any figure over the whole tensor.
    def spoil(encoded: np.ndarray) -> np.ndarray:
        spoiled = encoded.copy()
        scale = spoiled.reshape(-1, 34)[17, :2].view("<f2")
        scale *= np.float16(1.05)
        return spoiled

    product.raw["token_embd.weight"] = spoil


def nan_in_a_norm(product: Product) -> None:
    values = product.tensors["blk.0.attn_norm.weight"][0].copy()
    values[3] = np.nan
    product.tensors["blk.0.attn_norm.weight"] = (values, Type.F32)


def other_pre_tokenizer(product: Product) -> None:
    # Not "llama-bpe": it differs from "qwen2" only in runs of digits, of which such vocabularies hold no piece.
    product.keys["tokenizer.ggml.pre"] = "gpt-2"


def two_tokens_swapped(product: Product) -> None:
    tokens = product.keys["tokenizer.ggml.tokens"]
    tokens[300], tokens[301] = tokens[301], tokens[300]


def half_the_merges(product: Product) -> None:
    merges = product.keys["tokenizer.ggml.merges"]
    del merges[len(merges) // 2 :]


def special_token_typed_normal(product: Product) -> None:
    token = product.keys["tokenizer.ggml.tokens"].index("<|vision_start|>")
    product.keys["tokenizer.ggml.token_type"][token] = 1


def padding_typed_normal(product: Product) -> None:
    product.keys["tokenizer.ggml.token_type"][-1] = 1


def bos_added(product: Product) -> None:
    product.keys["tokenizer.ggml.add_bos_token"] = True
    product.keys["tokenizer.ggml.bos_token_id"] = 900


def another_eos(product: Product) -> None:
    product.keys["tokenizer.ggml.eos_token_id"] = product.keys["tokenizer.ggml.padding_token_id"]


def head_missing(product: Product) -> None:
    del product.tensors["output.weight"]


def unknown_tensor(product: Product) -> None:
    product.tensors["blk.0.attn_q.scale"] = (np.ones(1, np.float32), Type.F32)


def transposed(product: Product) -> None:
    values, kind = product.tensors[FFN]
    product.tensors[FFN] = (np.ascontiguousarray(values.T), kind)


def renamed(product: Product) -> None:
    product.tensors["blk.0.ffn_gat.weight"] = product.tensors.pop(FFN)


SPOILED: list[tuple[Callable[[Product], None], dict[str, set[str]]]] = [
    (wrong_type, {"tensors": {"check.tensor_type"}, "size": {"check.file_size"}}),
    (another_rope_base, {"hyperparameters": {"check.hyperparameter"}}),
    (halves_not_interleaved, {"weights": {"check.tensor_error"}}),
    (scales_off_by_an_eighth, {"weights": {"check.tensor_error"}}),
    (one_scale_of_many_off, {"weights": {"check.block_error"}}),
    # The engine rounds activations to eight bits before a Q8_0 product and turns the NaN into a number: its logits are
    # finite, so only a look at the weights tells.
    (nan_in_a_norm, {"weights": {"check.not_finite"}}),
    (other_pre_tokenizer, {"tokenizing": {"check.tokenizing"}}),
    (two_tokens_swapped, {"vocabulary": {"check.vocabulary"}, "tokenizing": {"check.token_bytes", "check.tokenizing"}}),
    (half_the_merges, {"vocabulary": {"check.vocabulary"}, "tokenizing": {"check.tokenizing"}}),
    (
        special_token_typed_normal,
        {"vocabulary": {"check.vocabulary", "check.token_type"}, "tokenizing": {"check.tokenizing"}},
    ),
    (
        padding_typed_normal,
        {"vocabulary": {"check.vocabulary", "check.token_type"}, "tokenizing": {"check.token_bytes"}},
    ),
    (bos_added, {"vocabulary": {"check.vocabulary"}, "tokenizing": {"check.added_ends"}}),
    (another_eos, {"vocabulary": {"check.vocabulary"}}),
    # An engine takes the embedding for a head that is missing, and says nothing.
    (head_missing, {"tensors": {"check.tensor_missing"}, "size": {"check.file_size"}}),
    (transposed, {"tensors": {"check.tensor_shape"}, "generation": {"check.engine.load"}}),
    (
        renamed,
        {"tensors": {"check.tensor_missing", "check.tensor_unexpected"}, "generation": {"check.engine.load"}},
    ),
    # An engine may know this one, and would multiply by it.
    (unknown_tensor, {"tensors": {"check.tensor_unexpected"}, "size": {"check.file_size"}}),
]


@pytest.mark.parametrize(("spoil", "expected"), SPOILED, ids=[spoil.__name__ for spoil, _ in SPOILED])
def test_a_spoiled_product_fails_the_checks_that_see_it(spoil, expected, llama, tmp_path):
    product = copy.deepcopy(llama.product)
    spoil(product)
    assert failing(check(llama, tmp_path, product)) == expected


def test_a_product_that_computes_no_numbers_is_seen_at_work(tokenizer, tmp_path):
    made = make(tmp_path / "model", tokenizer, "LlamaForCausalLM", Type.F16)
    nan_in_a_norm(made.product)
    assert failing(check(made, tmp_path, kind="F16")) == {
        "weights": {"check.not_finite"},
        "generation": {"check.logits_not_finite"},
    }


def test_a_product_with_two_faults_names_both(llama, tmp_path):
    product = copy.deepcopy(llama.product)
    another_rope_base(product)
    one_scale_of_many_off(product)
    assert failing(check(llama, tmp_path, product)).keys() == {"hyperparameters", "weights"}


def test_a_head_beside_tied_embeddings_is_unexpected(tokenizer, tmp_path):
    made = make(tmp_path / "model", tokenizer, "LlamaForCausalLM", tie_word_embeddings=True)
    made.product.tensors["output.weight"] = made.product.tensors["token_embd.weight"]
    assert failing(check(made, tmp_path)) == {"tensors": {"check.tensor_unexpected"}, "size": {"check.file_size"}}


def test_a_head_that_a_tied_checkpoint_carries_must_be_its_embedding(tokenizer, llama, tmp_path):
    # config.json says tied, so transformers never looks at lm_head; an engine would.
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(llama.config | {"tie_word_embeddings": True}))
    (tmp_path / "model" / "model.safetensors").symlink_to(llama.model / "model.safetensors")
    made = Made(tmp_path / "model", tokenizer, llama.config, llama.product)
    result = check(made, tmp_path)
    assert failing(result) == {"weights": {"check.tensor_error"}}
    assert [refusal.where for refusal in result.refusals] == ["output.weight"]


def test_without_readable_weights_the_unquantized_file_is_the_source(llama, tokenizer, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(llama.config))
    source = Product(
        "llama",
        llama.product.keys,
        {n: (v, Type.F16 if v.ndim == 2 else Type.F32) for n, (v, _) in llama.product.tensors.items()},
    ).write(tmp_path / "source.gguf")
    spoiled = copy.deepcopy(llama.product)
    one_scale_of_many_off(spoiled)
    for product, expected in ((llama.product, {}), (spoiled, {"weights": {"check.block_error"}})):
        path = product.write(tmp_path / "product.gguf")
        result = check_product(Inputs(path, source, tmp_path / "model", tokenizer, "Q8_0"))
        assert failing(result) == expected
        assert next(r for r in result.results if r.name == "weights").measured["against"] == "source.gguf"


def test_a_truncated_product_is_refused_before_anything_reads_it(llama, tmp_path):
    path = llama.product.write(tmp_path / "product.gguf")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)
    with pytest.raises(Refused) as refused:
        check_product(Inputs(path, path, llama.model, llama.tokenizer, "Q8_0"))
    assert [refusal.code for refusal in refused.value.refusals] == ["gguf.data_truncated"]


def test_a_type_that_is_none_is_a_configuration_error(llama, tmp_path):
    with pytest.raises(BadConfiguration, match="Q9_Z"):
        check(llama, tmp_path, kind="Q9_Z")


def test_a_type_without_a_mix_here_is_judged_by_the_types_found(llama, tmp_path):
    product = copy.deepcopy(llama.product)
    product.keys["general.file_type"] = 8  # MOSTLY_Q5_0
    product.tensors = {n: (v, Type.Q5_0 if v.ndim == 2 else Type.F32) for n, (v, _) in product.tensors.items()}
    result = check(llama, tmp_path, product, "Q5_0")
    assert failing(result) == {}
    assert result.results[0].measured["types_by_rule"] is False
