"""tokenizer.json and its companions -> the tokenizer.* keys of a GGUF, as llama.cpp's converter writes them.

Byte-level BPE only (tokenizer.ggml.model "gpt2"). Sources: llama.cpp's conversion/base.py (get_vocab_base,
_set_vocab_gpt2) and conversion/llama.py (set_vocab); special ids and the chat template come from gguf.SpecialVocab.
"""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.gguf.post_processors import added_tokens
from draftmill.gguf.pre_tokenizers import pre_tokenizer_name
from draftmill.intake.bounded_json import read_object
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.huggingface import MAX_SIDE_BYTES, read_tokenizer, token_text
from draftmill.tokenizers.vocabulary import AddedToken, Vocabulary, padding_text

if TYPE_CHECKING:
    from gguf import GGUFWriter, SpecialVocab

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_CONTROL_LOOKS = ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
"""Added tokens that the stock converter takes for control tokens although their owner does not call them special."""
_GRANITE_SMALL_ROWS = 49152
"""Vocabulary size at which the stock converter writes add_bos_token false for a llama."""


def add_vocabulary(writer: "GGUFWriter", folder: Path, architecture: str, rows: int) -> None:
    """Writes the keys into `writer`, in the stock converter's order.

    folder: holds the tokenizer's files and the model's config.json side by side. architecture: GGUF's name of the
    model that the tokenizer is of. rows: of the embedding, one text each.
    Raises Refused: tokenizer.malformed, intake.json_*, and convert.: tokenizer_missing, tokenizer_kind, tokenizer_rows,
    tokenizer_disagrees, special_token, special_ids, tokenizer_unreadable, pre_tokenizer_unknown.
    """
    side = _read_side(folder)
    vocabulary = _read_vocabulary(folder, side, rows)
    special = _special_vocabulary(folder, rows)
    special.merges = vocabulary.stated["merges"]
    special.add_special_token = added_tokens(vocabulary.stated["post_processor"], side)
    bos = special.special_token_ids.get("bos") if special.add_special_token.get("bos") else None
    pre = pre_tokenizer_name(vocabulary.stated, bos)
    texts, types = token_list(folder, vocabulary, rows)

    if architecture == "llama" and side.get("add_prefix_space") is not None:
        writer.add_add_space_prefix(bool(side["add_prefix_space"]))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    special.add_to_gguf(writer, quiet=True)
    if architecture == "llama" and rows == _GRANITE_SMALL_ROWS:
        writer.add_add_bos_token(False)


def token_list(folder: Path, vocabulary: Vocabulary, rows: int) -> tuple[list[str], list[int]]:
    """(texts, token types) for each of the `rows` ids; ids without a token become unused padding."""
    from gguf import TokenType

    texts, types = [], []
    rewritten = _decoded(folder, vocabulary)
    for token in range(rows):
        text, kind = vocabulary.texts.get(token), TokenType.NORMAL
        if text is None:
            text, kind = padding_text(token), TokenType.UNUSED
        elif token in vocabulary.added:
            text = rewritten.get(token, text)
            if vocabulary.added[token].special or _looks_like_control(text):
                kind = TokenType.CONTROL
            else:
                text, kind = text.replace("\u2581", " "), TokenType.USER_DEFINED
        texts.append(text)
        types.append(int(kind))
    return texts, types


def _looks_like_control(text: str) -> bool:
    brackets = (("<|", "|>"), ("<\uff5c", "\uff5c>"), ("<unused", ">"))
    return text in _CONTROL_LOOKS or any(text.startswith(a) and text.endswith(b) for a, b in brackets)


def _decoded(folder: Path, vocabulary: Vocabulary) -> dict[int, str]:
    """id -> text of added tokens after one encoding and decoding, which is how the stock converter takes them.

    Only a text beyond ASCII can come back changed by a byte-level decoder, so that only those are tried.
    """
    tokens = {t: a for t, a in vocabulary.added.items() if a.normalized is False and not a.text.isascii()}
    if not tokens:
        return {}
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return {token: _round_trip(tokenizer, added) for token, added in tokens.items()}


def _round_trip(tokenizer: Any, added: AddedToken) -> str:
    ids = tokenizer.encode(added.text, add_special_tokens=False).ids
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def _read_side(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_object(path, path.name, MAX_SIDE_BYTES) if path.is_file() else {}


def _read_vocabulary(folder: Path, side: dict[str, Any], rows: int) -> Vocabulary:
    if not (folder / "tokenizer.json").is_file():
        raise Refused(
            Refusal(
                "convert.tokenizer_missing",
                "tokenizer.json",
                "absent",
                "tokenizer.json",
                "The model comes without its tokenizer; name a donor with --tokenizer-from.",
            )
        )
    vocabulary = read_tokenizer(folder)
    findings = Findings()
    byte_level = vocabulary.kind == "BPE" and vocabulary.stated.get("merges")
    if not byte_level or (folder / "tokenizer.model").is_file():
        findings.add(
            "convert.tokenizer_kind",
            "tokenizer.model" if byte_level else "tokenizer.json:model",
            vocabulary.kind,
            "byte-level BPE with its merges, in tokenizer.json alone",
            "The native converter writes byte-level BPE vocabularies only; try --converter stock.",
        )
    if vocabulary.highest >= rows:
        findings.add(
            "convert.tokenizer_rows",
            "tokenizer.json",
            vocabulary.highest,
            f"below vocab_size {rows}",
            "The tokenizer has ids that the embedding has no row for; it is not this model's tokenizer.",
        )
    _check_agreement(vocabulary, side, findings)
    findings.raise_if_any()
    return vocabulary


def _check_agreement(vocabulary: Vocabulary, side: dict[str, Any], findings: Findings) -> None:
    """Refuses what transformers would add to tokenizer.json's tokens, or change in them, for tokenizer_config.json."""
    decoder = side.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        token = int(key) if key.isdecimal() else -1
        added = vocabulary.added.get(token)
        ours = [added.text, added.special] if added else [vocabulary.texts.get(token), None]
        theirs = [token_text(entry), entry.get("special") if isinstance(entry, dict) else None]
        if ours != theirs:
            findings.add(
                "convert.tokenizer_disagrees",
                f"tokenizer_config.json:added_tokens_decoder.{key[:20]}",
                theirs,
                ours,
                "The two tokenizer files describe this token differently; mend them, or try --converter stock.",
            )
    more = [side.get(key) for key in ("additional_special_tokens", "extra_special_tokens")]
    named = [side.get(f"{role}_token") for role in _ROLES]
    for group in more:
        named += group if isinstance(group, list) else group.values() if isinstance(group, dict) else []
    special = {added.text for added in vocabulary.added.values() if added.special}
    for text in sorted({text for text in map(token_text, named) if text is not None} - special):
        findings.add(
            "convert.special_token",
            "tokenizer_config.json",
            text[:200],
            "a special added token of tokenizer.json",
            "tokenizer_config.json gives a role to a token that tokenizer.json does not list as special; "
            "mend the files, or try --converter stock.",
        )


def _special_vocabulary(folder: Path, rows: int) -> "SpecialVocab":
    from gguf import SpecialVocab

    # Its warnings are about flags that `post_processors` decides here.
    logger = logging.getLogger("gguf.vocab")
    disabled, logger.disabled = logger.disabled, True
    try:
        special = SpecialVocab(folder)
        _check_template(special.chat_template)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Refused(
            Refusal(
                "convert.tokenizer_unreadable",
                "tokenizer.json, tokenizer_config.json, config.json",
                f"{type(error).__name__}: {error}"[:200],
                "the forms that transformers writes",
                "The tokenizer's files are not of the usual form; take fresh copies, or try --converter stock.",
            )
        ) from error
    finally:
        logger.disabled = disabled
    beyond = {role: token for role, token in special.special_token_ids.items() if token >= rows}
    if beyond:
        raise Refused(
            Refusal(
                "convert.special_ids",
                "config.json",
                beyond,
                f"below vocab_size {rows}",
                "A special token's id has no row in the embedding; config and tokenizer are of different models.",
            )
        )
    return special


def _check_template(template: Any) -> None:
    """Raises ValueError for what is neither a text nor a list of named texts."""
    named = template if isinstance(template, list) else []
    if not all(
        isinstance(t, dict) and isinstance(t.get("name"), str) and isinstance(t.get("template"), str) for t in named
    ):
        raise ValueError("chat_template is a list with an entry that is not a named text")
