"""Where a tokenizer may come from: a GGUF file, a tokenizer.json, or a folder that holds one; any two can be compared.

A tokenizer.json stands for the GGUF that llama.cpp's converter would make from it, which knows what the file itself
does not say: token types, the pre-tokenizer's name, and padding up to the rows of the embedding.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gguf.constants import TokenType

from draftmill.gguf.pre_tokenizers import pre_tokenizer_name
from draftmill.gguf.vocabulary_keys import token_list
from draftmill.intake.bounded_json import read_object
from draftmill.intake.text_config import stated_rows
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.ggml import TYPES, read_gguf
from draftmill.tokenizers.huggingface import MAX_SIDE_BYTES, read_tokenizer
from draftmill.tokenizers.pairing import Pairing, pair
from draftmill.tokenizers.vocabulary import MAX_TOKENS, Vocabulary

Form = Literal["GGUF", "tokenizer.json"]


@dataclass(frozen=True)
class Source:
    """One side. vocabulary: what the file states. rows: of the embedding, None where nothing beside it tells."""

    path: Path
    form: Form
    vocabulary: Vocabulary
    rows: int | None

    def as_gguf(self, rows: int) -> Vocabulary:
        """The vocabulary of the GGUF made from it, under an embedding of `rows` rows where it has no own count."""
        if self.form == "GGUF":
            return self.vocabulary
        padded = self.vocabulary.padded(max(self.rows or rows, self.vocabulary.highest + 1))
        if padded.kind != "BPE":
            return padded
        texts, types = token_list(self.path.parent, padded, padded.highest + 1)
        kinds = [[t, TYPES[types[t]]] for t in padded.texts if types[t] != TokenType.NORMAL]
        pre = None
        with suppress(Refused):
            pre = pre_tokenizer_name(padded.stated, padded.ids.get("bos") if padded.add_bos else None)
        return replace(
            padded,
            texts={token: texts[token] for token in padded.texts},
            stated=dict(padded.stated) | {"token_types": kinds},
            pre=pre,
        )


def read_source(path: Path) -> Source:
    """Reads a GGUF's header, or a tokenizer.json with tokenizer_config.json and config.json (vocab_size) beside it.

    Raises Refused (gguf.*, tokenizer.*, intake.json_*), OSError.
    """
    if path.is_dir():
        if not (path / "tokenizer.json").is_file():
            files = sorted(each.name for each in path.iterdir())[:20]
            sentence = (
                "The folder holds no tokenizer.json; name the GGUF file itself, or the model's repository folder."
            )
            raise Refused(Refusal("tokenizer.none", str(path), files, "tokenizer.json", sentence))
        path = path / "tokenizer.json"
    if path.suffix != ".json":
        vocabulary = read_gguf(path)
        return Source(path, "GGUF", vocabulary, vocabulary.size)
    if path.name != "tokenizer.json":
        sentence = "A tokenizer lies in a file of this name, with its tokenizer_config.json beside it; name that."
        raise Refused(Refusal("tokenizer.file_name", str(path), path.name, "tokenizer.json, or a .gguf file", sentence))
    vocabulary = read_tokenizer(path.parent)
    return Source(path, "tokenizer.json", vocabulary, _rows(path.with_name("config.json"), vocabulary))


def read_both(target: Path, draft: Path) -> tuple[Source, Source]:
    """Raises Refused with the findings of both sides, each told by its side."""
    sources: list[Source] = []
    findings: list[Refusal] = []
    for side, path in (("target", target), ("draft", draft)):
        try:
            sources.append(read_source(path))
        except Refused as refused:
            findings += [replace(refusal, where=f"{side} {refusal.where}") for refusal in refused.refusals]
    if findings:
        raise Refused(*findings)
    return sources[0], sources[1]


def pair_sources(target: Source, draft: Source) -> Pairing:
    """`pair`, of what the GGUF files say or would say."""
    ours, theirs = as_gguf(target, draft)
    pairing = pair(ours, theirs)
    unknown = [
        f"the rows of the {side}'s embedding are not known (no config.json with a vocab_size); taken as {rows}"
        for side, source, rows in (("target", target, ours.size), ("draft", draft, theirs.size))
        if source.rows is None
    ]
    return replace(pairing, remarks=(*pairing.remarks, *unknown))


def as_gguf(target: Source, draft: Source) -> tuple[Vocabulary, Vocabulary]:
    """Both as GGUF; rows that nobody states are taken to be the other side's."""
    highest = max(target.vocabulary.highest, draft.vocabulary.highest) + 1
    return target.as_gguf(draft.rows or highest), draft.as_gguf(target.rows or highest)


def compare_pair(target: Path, draft: Path) -> Pairing:
    """Judges two files before any server starts, from their headers alone.

    A broken file raises Refused with every finding of both; a pair that does not fit is a Pairing with refusals.
    """
    return pair_sources(*read_both(target, draft))


def _rows(config: Path, vocabulary: Vocabulary) -> int | None:
    if not config.is_file():
        return None
    value = read_object(config, config.name, MAX_SIDE_BYTES)
    rows = stated_rows(value)
    if rows is None:
        return None
    if type(rows) is not int or not vocabulary.highest < rows <= MAX_TOKENS:
        sentence = "The embedding has no row for the tokenizer's highest id; these files are not of one model."
        expected = f"{vocabulary.highest + 1}..{MAX_TOKENS}"
        raise Refused(Refusal("tokenizer.rows", "config.json: vocab_size", rows, expected, sentence))
    return rows
