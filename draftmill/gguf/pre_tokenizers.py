"""The name by which llama.cpp knows how a byte-level BPE splits text before merging (tokenizer.ggml.pre).

llama.cpp's converter encodes a fixed text and looks the digest of the ids up. Here the rule itself is looked up: the
digest of normalizer, pre-tokenizer and `ignore_merges` as tokenizer.json states them, without the options that change
offsets only. Each row was made from the tokenizer named beside it, for which the stock converter gives the same name.

A name that the runtime splits alike stands for the whole group (smollm also for starcoder, refact and the like).
"""

from collections.abc import Mapping
from typing import Any

from draftmill.digest import sha256_json
from draftmill.outcome import Refusal, Refused

_OFFSETS_ONLY = {"trim_offsets"}

KNOWN: dict[tuple[str, int | None], str] = {
    # Qwen3 (tokenizer.json aeb13307a71acd8f)
    ("244617713ab4f0128b8a7913d0bba498d09263cfdcf3102e72f9d5e521acedaa", None): "qwen2",
    # the same without NFC, which neither the stock converter's text nor its runtime can tell apart
    ("544de69e87a80f07269692da8a7dc3eafbbab6a976974a0ba2a35dc2881c13fa", None): "qwen2",
    # DeepSeek-R1-Distill-Qwen: Qwen's rule behind a bos
    ("244617713ab4f0128b8a7913d0bba498d09263cfdcf3102e72f9d5e521acedaa", 151646): "deepseek-r1-qwen",
    ("544de69e87a80f07269692da8a7dc3eafbbab6a976974a0ba2a35dc2881c13fa", 151646): "deepseek-r1-qwen",
    # SmolLM2-135M-Instruct
    ("526454803b772107260e5720c1fc39e1c4d26167b0a4b0cb9b7f6c76032026e0", None): "smollm",
    # Llama 3 and 3.1 (tokenizer.json e134af98b985517b)
    ("7eb0f18c123c3071cf8d6b9032ac0817c5a240223f7eb4e42d34a80651aa2f10", 128000): "llama-bpe",
}
"""(digest of the rule, id of the bos that the tokenizer puts first or None) -> name."""


def rule_digest(stated: Mapping[str, Any]) -> str:
    """SHA-256 of the splitting rule. stated: `Vocabulary.stated` of a tokenizer.json."""
    rule = {
        "normalizer": _plain(stated.get("normalizer")),
        "pre_tokenizer": _plain(stated.get("pre_tokenizer")),
        "ignore_merges": bool(stated.get("options", {}).get("ignore_merges")),
    }
    return sha256_json(rule)


def pre_tokenizer_name(stated: Mapping[str, Any], bos: int | None) -> str:
    """bos: the id that the tokenizer puts before every text, None when it adds none.

    Raises Refused (convert.pre_tokenizer_unknown).
    """
    digest = rule_digest(stated)
    name = KNOWN.get((digest, bos))
    if name is None:
        raise Refused(
            Refusal(
                "convert.pre_tokenizer_unknown",
                "tokenizer.json:pre_tokenizer",
                {"digest": digest, "bos": bos},
                sorted(set(KNOWN.values())),
                f"The native converter does not know the pre-tokenizer {digest[:12]}; try --converter stock.",
            )
        )
    return name


def _plain(value: Any) -> Any:
    """Without the options that do not change what is encoded."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if key not in _OFFSETS_ONLY}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
