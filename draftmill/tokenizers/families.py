"""The tokenizer families that published drafters are made for: how a repository without a tokenizer names its own.

`vocab_size` tells none of them apart: Qwen2.5, Qwen3 and both DeepSeek distils say 151936; Llama 3, 3.1, 3.2 and the
distil say 128256. What does is listed here: the tokens by which a family is known, and where known the digest of its
whole id -> text map. "measured" digests were taken from the family's own tokenizer.json; "derived" ones from a
relative's by the differences that are documented, so that a mismatch of those proves nothing by itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from draftmill.tokenizers.identity import Difference
from draftmill.tokenizers.vocabulary import Vocabulary

_QWEN_SIZES = frozenset({151936, 152064})
_LLAMA3_SIZES = frozenset({128256})


def _numbered(first: int, *texts: str) -> dict[int, str]:
    return dict(enumerate(texts, first))


def _llama3(**named: str) -> dict[int, str]:
    """The 256 added tokens of a Llama 3 vocabulary: those named ("t128009"), and reserved slots numbered in between."""
    texts = {int(token[1:]): text for token, text in named.items()}
    slots = (token for token in range(128000, 128256) if token not in texts)
    return texts | {token: f"<|reserved_special_token_{n}|>" for n, token in enumerate(slots)}


_QWEN2_5 = _numbered(
    151643,
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>"),
    *("<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>"),
    *("<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"),
)
_QWEN3 = _QWEN2_5 | _numbered(151665, "<tool_response>", "</tool_response>", "<think>", "</think>")
_R1_QWEN = _QWEN2_5 | _numbered(
    151643,
    *(
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜begin▁of▁sentence｜>",
        "<|EOT|>",
        "<think>",
        "</think>",
    ),
)
_LLAMA3 = _llama3(
    t128000="<|begin_of_text|>",
    t128001="<|end_of_text|>",
    t128006="<|start_header_id|>",
    t128007="<|end_header_id|>",
    t128009="<|eot_id|>",
)
_LLAMA3_1 = _llama3(
    t128000="<|begin_of_text|>",
    t128001="<|end_of_text|>",
    t128004="<|finetune_right_pad_id|>",
    t128006="<|start_header_id|>",
    t128007="<|end_header_id|>",
    t128008="<|eom_id|>",
    t128009="<|eot_id|>",
    t128010="<|python_tag|>",
)


@dataclass(frozen=True)
class Family:
    """name: what people call it; donor: a repository that carries its tokenizer; base: pattern of the base model names.

    model_types, vocab_sizes, eos: what a config.json of the family can say (eos: any of these ids).
    known: id -> text by which it is told from its relatives. highest: its highest id.
    texts_sha256: digest of the id -> text map, by `evidence`. files: sha256 of tokenizer.json files known to be its.
    scaled_rope: whether its configs can say rope_type "llama3" (Llama 3 itself came before that).
    named_only: a relative that shares another family's config, so that only metadata can say that it is meant.
    """

    name: str
    donor: str
    base: str
    model_types: frozenset[str]
    vocab_sizes: frozenset[int]
    eos: frozenset[int]
    known: Mapping[int, str]
    highest: int
    texts_sha256: str | None = None
    evidence: Literal["measured", "derived"] | None = None
    files: frozenset[str] = field(default_factory=frozenset)
    scaled_rope: bool = True
    named_only: bool = False

    def difference(self, vocabulary: Vocabulary) -> Difference | None:
        """Where the vocabulary is not this family's, or None."""
        for token, text in self.known.items():
            if vocabulary.texts.get(token) != text:
                return Difference("texts", f"id {token}", text, vocabulary.texts.get(token))
        if vocabulary.highest != self.highest:
            token = min(vocabulary.highest, self.highest) + 1
            return Difference("texts", f"id {token}", self._tail(token), vocabulary.texts.get(token))
        digest = vocabulary.digests["texts"]
        if self.evidence == "measured" and digest != self.texts_sha256:
            return Difference("texts", "the whole map", self.texts_sha256, digest)
        return None

    def _tail(self, token: int) -> str | None:
        return self.known.get(token, "a token" if token <= self.highest else None)

    def level(self, vocabulary: Vocabulary) -> str:
        """How strictly a vocabulary without `difference` is known to be this family's: file, map or known tokens."""
        if vocabulary.file_sha256 in self.files:
            return "file"
        return "map" if vocabulary.digests["texts"] == self.texts_sha256 else "known tokens"


FAMILIES = (
    Family(
        name="DeepSeek-R1-Distill-Qwen",
        donor="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        base=r"deepseek-r1-distill-qwen",
        model_types=frozenset({"qwen2"}),
        vocab_sizes=_QWEN_SIZES,
        eos=frozenset({151643}),
        known=_R1_QWEN,
        highest=151664,
        texts_sha256="f7586e0f9fc4048d7c9f0097c91a99a214fde80a21203ba0295983a22be61a09",
        evidence="derived",
        named_only=True,
    ),
    Family(
        name="DeepSeek-R1-0528-Qwen3",
        donor="deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
        base=r"deepseek-r1-0528-qwen3",
        model_types=frozenset({"qwen3"}),
        vocab_sizes=_QWEN_SIZES,
        eos=frozenset({151645}),
        known={151643: "<｜begin▁of▁sentence｜>", 151645: "<｜end▁of▁sentence｜>"},
        highest=151668,
        named_only=True,
    ),
    Family(
        name="DeepSeek-R1-Distill-Llama",
        donor="deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        base=r"deepseek-r1-distill-llama",
        model_types=frozenset({"llama"}),
        vocab_sizes=_LLAMA3_SIZES,
        eos=frozenset({128001}),
        known={128000: "<｜begin▁of▁sentence｜>", 128001: "<｜end▁of▁sentence｜>"},
        highest=128255,
        named_only=True,
    ),
    Family(
        name="Qwen3",
        donor="Qwen/Qwen3-0.6B",
        base=r"(^|[^a-z0-9])qwen3(?![.\d])",
        model_types=frozenset({"qwen3"}),
        vocab_sizes=_QWEN_SIZES,
        eos=frozenset({151643, 151645}),
        known=_QWEN3,
        highest=151668,
        texts_sha256="83f42d8b05b3b18eab3588c9d4ce3f847c881cad07f8cf12a21270fe438afe03",
        evidence="measured",
        files=frozenset({"aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"}),
    ),
    Family(
        name="Qwen2",
        donor="Qwen/Qwen2-0.5B",
        base=r"(^|[^a-z0-9])qwen2(?![.\d])",
        model_types=frozenset({"qwen2"}),
        vocab_sizes=_QWEN_SIZES,
        eos=frozenset({151643, 151645}),
        known={token: _QWEN2_5[token] for token in (151643, 151644, 151645)},
        highest=151645,
        named_only=True,
    ),
    Family(
        name="Qwen2.5",
        donor="Qwen/Qwen2.5-0.5B",
        base=r"(^|[^a-z0-9])(qwen2\.5|qwq)",
        model_types=frozenset({"qwen2"}),
        vocab_sizes=_QWEN_SIZES,
        eos=frozenset({151643, 151645}),
        known=_QWEN2_5,
        highest=151664,
        texts_sha256="6d4c47353b3353c011a161d2e3cf72f4971c66a5369143dd9da115ca7f758fc5",
        evidence="derived",
    ),
    Family(
        name="Llama-3.1 (also 3.2 and 3.3)",
        donor="meta-llama/Llama-3.2-1B-Instruct",
        base=r"llama-?3\.[123]",
        model_types=frozenset({"llama"}),
        vocab_sizes=_LLAMA3_SIZES,
        eos=frozenset({128001, 128008, 128009}),
        known=_LLAMA3_1,
        highest=128255,
        texts_sha256="f12cdb67d594a1cb070eb8657b002f76a2e9034d537c48226699ff9643077d26",
        evidence="derived",
    ),
    Family(
        name="Llama-3",
        donor="meta-llama/Meta-Llama-3-8B-Instruct",
        base=r"llama-?3(?![.\d])",
        model_types=frozenset({"llama"}),
        vocab_sizes=_LLAMA3_SIZES,
        eos=frozenset({128001, 128009}),
        known=_LLAMA3,
        highest=128255,
        texts_sha256="90a7624c87fdb79644e28e0588ba1a0fbe50682bd0f8a5989b2a81e92936405e",
        evidence="measured",
        files=frozenset({"e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7"}),
        scaled_rope=False,
    ),
)
"""Distils first: their base models' names contain the names of the families they descend from.

Ids and texts: measured on the files named in `files`; the DeepSeek ones from their published tokenizer_config.json and
from runtime logs; Llama 3.1's renumbering from its documented special tokens (128020 = reserved 12).
"""


@dataclass(frozen=True)
class Declared:
    """What a repository says about its tokenizer family: the possible ones, and by which evidence."""

    families: tuple[Family, ...]
    evidence: str


def declared(
    config: Mapping[str, Any], base_models: Iterable[str] = (), families: Iterable[Family] = FAMILIES
) -> Declared:
    """The families that a draft without tokenizer can belong to.

    Its metadata decides (base_models of its card, then config's _name_or_path); without a known name there, model_type,
    vocab_size, the eos ids and the rope do, without the relatives that have to be named. Empty: nothing here knows such
    a model.
    """
    names = [*base_models, config.get("_name_or_path")]
    for name in names:
        family = next((f for f in families if isinstance(name, str) and re.search(f.base, name, re.IGNORECASE)), None)
        if family and config.get("vocab_size") in family.vocab_sizes:
            return Declared((family,), f"base model {name}")
    eos = config.get("eos_token_id")
    said = {token for token in (eos if isinstance(eos, list) else [eos]) if type(token) is int}
    model_type, vocab_size = config.get("model_type"), config.get("vocab_size")
    possible = tuple(
        family
        for family in families
        if not family.named_only
        and str(model_type) in family.model_types
        and vocab_size in family.vocab_sizes
        and said <= family.eos
        and (family.scaled_rope or not _has_scaled_rope(config))
    )
    return Declared(possible, f"model_type {model_type}, vocab_size {vocab_size}, eos {sorted(said)}")


def _has_scaled_rope(config: Mapping[str, Any]) -> bool:
    """Whether the config asks for Llama 3.1's rope scaling (transformers 5 renamed the key)."""
    ropes = [config.get("rope_scaling"), config.get("rope_parameters")]
    return any(isinstance(rope, dict) and "llama3" in (rope.get("rope_type"), rope.get("type")) for rope in ropes)
