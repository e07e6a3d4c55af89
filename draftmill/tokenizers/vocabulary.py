"""A vocabulary: what each id says, and everything else a tokenizer's owner stated about it.

Both readers end here (`huggingface.read_tokenizer`, `gguf.read_gguf`), so that identity and pairing compare like with
like. What a source cannot state is absent, never a default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from draftmill.digest import sha256_json

ROLES = ("bos", "eos", "pad", "unk")
MAX_TOKENS = 1 << 22
"""Largest id count read; the largest published vocabularies have about 2^18."""

# Spare tokens that Meta put into the Llama 3 vocabularies for later use: they stand for no text.
_RESERVED = re.compile(r"<\|reserved_special_token_\d+\|>")


def padding_text(token: int) -> str:
    """What llama.cpp's converter writes for an id below vocab_size that the tokenizer lacks (conversion/base.py)."""
    return f"[PAD{token}]"


def is_reserved_slot(text: str) -> bool:
    return _RESERVED.fullmatch(text) is not None


@dataclass(frozen=True)
class AddedToken:
    """A token outside the model's own pieces. The flags are None where the source cannot state them (GGUF)."""

    text: str
    special: bool | None = None
    normalized: bool | None = None
    lstrip: bool | None = None
    rstrip: bool | None = None
    single_word: bool | None = None

    @property
    def flags(self) -> list[bool | None]:
        return [self.special, self.normalized, self.lstrip, self.rstrip, self.single_word]


@dataclass(frozen=True)
class Vocabulary:
    """One tokenizer.

    source: file it was read from; kind: llama.cpp's vocabulary type (BPE, SPM, WPM, UGM, RWKV, PLAMO2).
    texts: id -> text for every id that means something, padding left out. size: rows, padding included.
    ids: role (bos, eos, pad, unk) -> id, where stated; add_bos, add_eos: whether the tokenizer adds them, None where
    not stated. unresolved: role -> token text that no id carries.
    stated: facet -> JSON value of the other statements (merges, normalizer, pre_tokenizer, post_processor, decoder,
    options). pre: llama.cpp's pre-tokenizer name (GGUF only). file_sha256: digest of a tokenizer.json, None for GGUF.
    """

    source: str
    kind: str
    texts: Mapping[int, str]
    size: int
    added: Mapping[int, AddedToken]
    ids: Mapping[str, int]
    add_bos: bool | None
    add_eos: bool | None
    stated: Mapping[str, Any]
    unresolved: Mapping[str, str]
    pre: str | None = None
    file_sha256: str | None = None

    @property
    def highest(self) -> int:
        """The highest id that means something; -1 when there is none."""
        return max(self.texts, default=-1)

    @cached_property
    def id_of(self) -> dict[str, int]:
        return {text: token for token, text in self.texts.items()}

    def text(self, token: int) -> str:
        """The text a GGUF carries for the id, padding included."""
        return self.texts.get(token, padding_text(token))

    def is_special(self, token: int) -> bool:
        """Whether the id is an added token that its owner calls special (for GGUF: any control token)."""
        return token in self.added and self.added[token].special is not False

    def padded(self, rows: int) -> "Vocabulary":
        """The same vocabulary under an embedding of `rows` rows, as a converter would write it."""
        if rows <= self.highest:
            raise ValueError(f"{rows} rows do not hold id {self.highest}")
        return replace(self, size=rows)

    @cached_property
    def facets(self) -> dict[str, Any]:
        """Everything comparable, by name; a facet the source does not state is absent. Padding is no part of it."""
        facets: dict[str, Any] = {
            "texts": [[token, self.texts[token]] for token in sorted(self.texts)],
            "added": [[token, self.added[token].text] for token in sorted(self.added)],
            "kind": self.kind,
        }
        if all(None not in token.flags for token in self.added.values()):
            facets["added_flags"] = [[token, *self.added[token].flags] for token in sorted(self.added)]
        facets |= {role: self.ids[role] for role in ROLES if role in self.ids}
        facets |= {n: v for n, v in (("add_bos", self.add_bos), ("add_eos", self.add_eos)) if v is not None}
        return facets | dict(self.stated)

    @cached_property
    def digests(self) -> dict[str, str]:
        """Facet -> SHA-256 of its canonical JSON."""
        return {name: sha256_json(value) for name, value in self.facets.items()}
