"""Small tokenizers that say at chosen ids what the real ones say there, and drafts to go with them.

The texts are written out here from the vendors' published special tokens, not taken from the code under test. Ids are
sparse: the pieces below are ten letters, so that a vocabulary of 151,936 rows costs nothing.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import write_safetensors

LETTERS = {token: letter for token, letter in enumerate("abcdefghij")}

QWEN2_5 = {
    151643: "<|endoftext|>", 151644: "<|im_start|>", 151645: "<|im_end|>", 151646: "<|object_ref_start|>",
    151647: "<|object_ref_end|>", 151648: "<|box_start|>", 151649: "<|box_end|>", 151650: "<|quad_start|>",
    151651: "<|quad_end|>", 151652: "<|vision_start|>", 151653: "<|vision_end|>", 151654: "<|vision_pad|>",
    151655: "<|image_pad|>", 151656: "<|video_pad|>", 151657: "<tool_call>", 151658: "</tool_call>",
    151659: "<|fim_prefix|>", 151660: "<|fim_middle|>", 151661: "<|fim_suffix|>", 151662: "<|fim_pad|>",
    151663: "<|repo_name|>", 151664: "<|file_sep|>",
}  # fmt: skip
QWEN3 = QWEN2_5 | {151665: "<tool_response>", 151666: "</tool_response>", 151667: "<think>", 151668: "</think>"}
R1_QWEN = QWEN2_5 | {
    151643: "<｜end▁of▁sentence｜>", 151644: "<｜User｜>", 151645: "<｜Assistant｜>", 151646: "<｜begin▁of▁sentence｜>",
    151647: "<|EOT|>", 151648: "<think>", 151649: "</think>",
}  # fmt: skip
R1_0528_QWEN3 = QWEN3 | {151643: "<｜begin▁of▁sentence｜>", 151644: "<｜User｜>", 151645: "<｜end▁of▁sentence｜>"}


def _llama(named: dict[int, str]) -> dict[int, str]:
    texts, slot = {}, 0
    for token in range(128000, 128256):
        if token in named:
            texts[token] = named[token]
        else:
            texts[token] = f"<|reserved_special_token_{slot}|>"
            slot += 1
    return texts


LLAMA3 = _llama(
    {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128006: "<|start_header_id|>",
     128007: "<|end_header_id|>", 128009: "<|eot_id|>"}
)  # fmt: skip
LLAMA3_1 = _llama(
    {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>", 128004: "<|finetune_right_pad_id|>",
     128006: "<|start_header_id|>", 128007: "<|end_header_id|>", 128008: "<|eom_id|>", 128009: "<|eot_id|>",
     128010: "<|python_tag|>"}
)  # fmt: skip
R1_LLAMA = LLAMA3_1 | {128000: "<｜begin▁of▁sentence｜>", 128001: "<｜end▁of▁sentence｜>"}
HERMES = LLAMA3_1 | {128013: "<tool_call>"}

PLAIN = {151657, 151658, 151659, 151660, 151661, 151662, 151663, 151664, 151665, 151666, 151667, 151668}
"""Added tokens of the Qwen tokenizers that are not special; R1's are listed by text below."""
PLAIN_TEXTS = {"<｜User｜>", "<｜Assistant｜>", "<|EOT|>", "<think>", "</think>", "<tool_call>"}

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def document(added: dict[int, str], pieces: dict[int, str] = LETTERS, **changes: Any) -> dict[str, Any]:
    """A tokenizer.json. Added tokens are also pieces, which keeps their ids where they are in the library too."""
    tokens = [
        {"id": token, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": token not in PLAIN and text not in PLAIN_TEXTS}
        for token, text in added.items()
    ]  # fmt: skip
    vocab = {text: token for token, text in {**pieces, **added}.items()}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": {"type": "NFC"},
        "pre_tokenizer": BYTE_LEVEL, "post_processor": BYTE_LEVEL, "decoder": BYTE_LEVEL,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    } | changes  # fmt: skip


def write_tokenizer(folder: Path, added: dict[int, str], config: dict[str, Any] | None = None, **changes: Any) -> Path:
    """tokenizer.json and, with `config`, tokenizer_config.json; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(document(added, **changes)))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def write_draft(
    folder: Path, vocab_size: int, *, rows: int | None = None, head: int | None = None, **config: Any
) -> Path:
    """A weights-only draft: config.json, and a model.safetensors whose rows are two numbers wide."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"vocab_size": vocab_size, "hidden_size": 2, **config}))
    tensors = {"model.embed_tokens.weight": np.zeros((rows or vocab_size, 2), np.float16)}
    if head is not None:
        tensors["lm_head.weight"] = np.zeros((head, 2), np.float16)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
