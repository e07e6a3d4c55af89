"""Checks of real input: SmolLM2's weights, and the tokenizers of SmolLM2 and Qwen3."""

import pytest
from gguf import GGMLQuantizationType as Type

from draftmill.gguf.product_check import Inputs, check_product
from draftmill.gguf.product_check_tokenizer import compare_tokenizing
from draftmill.tokenizers.huggingface import read_tokenizer
from flows.demo import smollm2
from tests.support.inputs import qwen3_tokenizer, smollm2_gguf
from tests.support.products import make


@pytest.mark.slow
def test_the_published_smollm2_file_is_what_its_checkpoint_says(tmp_path):
    # The checkpoint is the file's own weights, rounded to bf16: what is left is that rounding.
    smollm2.build_hub(smollm2_gguf(), tmp_path)
    draft, donor = tmp_path / smollm2.DRAFT, tmp_path / smollm2.DONOR
    result = check_product(Inputs(smollm2_gguf(), smollm2_gguf(), draft, donor, "Q4_1"))
    assert [refusal.code for refusal in result.refusals] == []
    measured = {r.name: r.measured for r in result.results}
    assert measured["size"]["parameters"] == 134_515_008
    assert measured["size"]["file_size"] == "98.4 MB (93.8 MiB)"
    assert measured["weights"]["lowest_cosine"] > 0.99999
    assert measured["tokenizing"]["texts_that_differ"] == []


@pytest.mark.slow
def test_qwen3s_tokenizer_round_trips_and_the_one_known_limit_is_counted(tmp_path):
    made = make(tmp_path, qwen3_tokenizer(), "Qwen3ForCausalLM", Type.F16, vocab_size=151936)
    product = made.product.write(tmp_path / "product.gguf")
    measured, findings = compare_tokenizing(product, qwen3_tokenizer(), read_tokenizer(qwen3_tokenizer()))
    assert findings.refusals == ()
    assert measured["ids"] == 151936
    # This engine does not compose characters (NFC) before it cuts.
    assert measured["texts_not_normalized"] == ["combining", "hangul_jamo"]
    product = made.product
    product.keys["tokenizer.ggml.pre"] = "gpt-2"
    spoiled = product.write(tmp_path / "spoiled.gguf")
    measured, findings = compare_tokenizing(spoiled, qwen3_tokenizer(), read_tokenizer(qwen3_tokenizer()))
    assert {refusal.code for refusal in findings.refusals} == {"check.tokenizing"}
    assert "english" in measured["texts_that_differ"]
