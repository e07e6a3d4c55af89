"""Models on which the two converters are compared: each has what another one lacks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from tests.support.checkpoints import config, tensor_shapes, to_bf16, write_checkpoint, write_safetensors
from tests.support.inputs import qwen3_tokenizer

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 1024,
    "beta_fast": 16.0,
    "attention_factor": 1.1,
}


def write_models(root: Path, smollm2: Path, donor: Path) -> Iterator[tuple[Path, Path, str]]:
    """Yields (model folder, tokenizer folder, output type). smollm2, donor: the real model and its tokenizer."""
    yield smollm2, donor, "f16"

    folder = root / "qwen3-sharded"
    write_checkpoint(folder, "Qwen3ForCausalLM", shards=3, **SMALL)
    yield folder, folder, "f16"

    # 224 is no multiple of 256, and like Qwen2.5's this config does not state head_dim.
    folder = root / "qwen2-tied"
    shape = {"hidden_size": 224, "num_attention_heads": 7, "head_dim": 32, "num_hidden_layers": 1}
    write_checkpoint(folder, "Qwen2ForCausalLM", dtype="F16", tie_word_embeddings=True, **SMALL | shape)
    change_json(folder / "config.json", head_dim=None)
    yield folder, folder, "bf16"

    folder = root / "llama-rope"
    write_checkpoint(folder, "LlamaForCausalLM", dtype="F32", rope_scaling=LLAMA3_ROPE, **SMALL | {"head_dim": 64})
    (folder / "generation_config.json").write_text(
        '{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": true}'
    )
    yield folder, folder, "f16"

    folder = root / "qwen3-yarn"
    write_checkpoint(folder, "Qwen3ForCausalLM", dtype="F32", rope_scaling=YARN, tie_word_embeddings=True, **SMALL)
    yield folder, folder, "bf16"

    yield *[_biased(root / "llama-biased")] * 2, "f32"
    yield *[_deepseek(root / "qwen2-deepseek")] * 2, "f16"


def _biased(folder: Path) -> Path:
    """A llama with every bias, linear rope scaling in transformers 5's form, and as many kv heads as heads."""
    folder.mkdir()
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 50000.0}
    cfg = config("LlamaForCausalLM", **SMALL | {"num_key_value_heads": 2, "num_hidden_layers": 1})
    del cfg["rope_theta"]
    cfg |= {"attention_bias": True, "mlp_bias": True, "rope_parameters": rope}
    (folder / "config.json").write_text(json.dumps(cfg))
    shapes = tensor_shapes(cfg)
    shapes |= {
        name.replace("_proj.weight", "_proj.bias"): s[:1] for name, s in shapes.items() if "_proj.weight" in name
    }
    rng = np.random.default_rng(1)
    tensors = {name: to_bf16(rng.standard_normal(shape, np.float32)) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(qwen3_tokenizer() / name, folder)
    return folder


def _deepseek(folder: Path) -> Path:
    """Qwen's pieces and rule under the special tokens of DeepSeek's distils, whose bos goes before every text."""
    names = {
        "<|endoftext|>": "<｜end▁of▁sentence｜>",
        "<|im_start|>": "<｜User｜>",
        "<|im_end|>": "<｜Assistant｜>",
        "<|object_ref_start|>": "<｜begin▁of▁sentence｜>",
    }
    ids = {"bos_token_id": 151646, "eos_token_id": 151643}
    write_checkpoint(folder, "Qwen2ForCausalLM", **SMALL | ids, num_hidden_layers=1)
    text = (folder / "tokenizer.json").read_text()
    document = json.loads(text)
    for token in document["added_tokens"]:
        token["content"] = names.get(token["content"], token["content"])
    bos = names["<|object_ref_start|>"]
    first, a, b = {"SpecialToken": {"id": bos, "type_id": 0}}, *({"Sequence": {"id": x, "type_id": 0}} for x in "AB")
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, a],
        "pair": [first, a, first, b],
        "special_tokens": {bos: {"id": bos, "ids": [151646], "tokens": [bos]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False))
    side = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": bos,
        "eos_token": names["<|endoftext|>"],
        "pad_token": names["<|endoftext|>"],
        # named, since transformers 5 would else give every qwen2 a new token "<|endoftext|>" for it
        "unk_token": names["<|endoftext|>"],
        "add_bos_token": True,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(side, ensure_ascii=False))
    return folder


def change_json(path: Path, **changes: Any) -> None:
    """Replaces keys of a JSON object; a value None removes one. A link is replaced by a file."""
    content = json.loads(path.read_text()) | changes
    path.unlink()
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


TINY_VOCAB = 300


def write_tiny_tokenizer(folder: Path) -> None:
    """A byte-level BPE of 256 bytes, one merge and two special tokens, split by SmolLM's rule."""
    tokenizer = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate([*sorted(ByteLevel.alphabet()), "ab"])}, merges=[("a", "b")])
    )
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|begin|>", special=True), AddedToken("<|end|>", special=True)])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<|begin|>", "eos_token": "<|end|>"}')


def write_tiny_model(folder: Path, architecture: str = "Qwen3ForCausalLM", **changes: Any) -> dict[str, Any]:
    """A checkpoint with the tiny tokenizer, some hundred kilobytes; returns its config."""
    write_tiny_tokenizer(folder)
    known = {"vocab_size": TINY_VOCAB, "bos_token_id": 257, "eos_token_id": 258}
    return write_checkpoint(folder, architecture, tokenizer=None, **SMALL | known | changes)
