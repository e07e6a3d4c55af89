"""A product's tokenizer, as llama.cpp runs it, against the `tokenizers` library on the tokenizer.json it came from.

Three questions: is the vocabulary in the file the same (ids, added tokens, merges, roles: `draftmill.tokenizers`), does
the engine turn each id into the same bytes, and does it cut the same texts into the same ids. Only byte-level BPE is
known.
"""

from pathlib import Path
from typing import Any

from draftmill.engine.process import Engine
from draftmill.gguf.header import GGUFHeader
from draftmill.gguf.tokenizer_corpus import corpus
from draftmill.intake.findings import Findings
from draftmill.tokenizers.ggml import read_gguf
from draftmill.tokenizers.identity import compare
from draftmill.tokenizers.vocabulary import AddedToken, Vocabulary

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_ADVICE = "Convert again with the tokenizer that the product is to have."
_SHOWN = 6


def compare_vocabulary(
    product: Path, header: GGUFHeader, vocabulary: Vocabulary, rows: int
) -> tuple[dict[str, Any], Findings]:
    """The file's vocabulary against the tokenizer's: check.vocabulary, check.vocabulary_rows, check.token_type.

    rows: of the embedding; the file lists a token for each, those above the tokenizer's as padding of type unused.
    """
    findings = Findings()
    ours = read_gguf(product)
    comparison = compare(vocabulary, ours)
    for difference in comparison.differences:
        findings.add(
            "check.vocabulary",
            difference.where,
            _short(difference.right),
            _short(difference.left),
            f"The product's {difference.facet} differ from the tokenizer's first at {difference.where}. {_ADVICE}",
        )
    if ours.size != rows:
        findings.add(
            "check.vocabulary_rows",
            "tokenizer.ggml.tokens",
            ours.size,
            rows,
            f"The product lists another number of tokens than its embedding has rows. {_ADVICE}",
        )
    types = header.fields.get("tokenizer.ggml.token_type", [])
    for token, kind in enumerate(types):
        expected = _expected_types(vocabulary, token)
        if kind not in expected:
            findings.add(
                "check.token_type",
                f"id {token} {vocabulary.text(token)!r}",
                kind,
                sorted(expected),
                f"The engine would treat this token as another kind than the tokenizer does. {_ADVICE}",
            )
    measured = {"tokens": len(vocabulary.texts), "padding": ours.size - len(ours.texts), "merges": _merges(ours)}
    return measured | comparison.as_json(), findings


def _expected_types(vocabulary: Vocabulary, token: int) -> set[int]:
    added = vocabulary.added.get(token)
    if added is None:
        return {_NORMAL} if token in vocabulary.texts else {_UNUSED}
    return {_CONTROL} if added.special else {_CONTROL, _USER_DEFINED} if _looks_special(added) else {_USER_DEFINED}


def _looks_special(token: AddedToken) -> bool:
    """Added tokens of this form the stock converter makes control tokens whatever their flag (conversion/base.py)."""
    return token.text.startswith(("<|", "<｜")) and token.text.endswith(("|>", "｜>"))


def _merges(vocabulary: Vocabulary) -> int:
    return len(vocabulary.stated.get("merges", ()))


def compare_tokenizing(product: Path, tokenizer: Path, vocabulary: Vocabulary) -> tuple[dict[str, Any], Findings]:
    """llama.cpp's tokenizer on the product against `tokenizers` on the folder's tokenizer.json.

    `vocabulary` is that file as `read_tokenizer` reads it. Findings: check.tokenizer_kind, check.token_bytes,
    check.tokenizing, check.added_ends. Where the tokenizer normalizes and the engine does not (NFC), a text is compared
    in its normalized form, and what the engine makes of it as it stands is counted as `texts_not_normalized`.
    Raises EngineError.
    """
    from tokenizers import Tokenizer

    findings = Findings()
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    if vocabulary.kind != "BPE" or (vocabulary.stated["decoder"] or {}).get("type") != "ByteLevel":
        findings.add(
            "check.tokenizer_kind",
            "tokenizer.json",
            [vocabulary.kind, vocabulary.stated["decoder"]],
            "byte-level BPE",
            "This check knows byte-level BPE only; the product cannot be judged yet.",
        )
        return {}, findings
    raw = corpus(added.text for added in vocabulary.added.values())
    normalize = library.normalizer.normalize_str if library.normalizer else str
    texts = {name: normalize(text) for name, text in raw.items()}
    changed = [name for name in raw if raw[name] != texts[name]]
    with Engine(product, vocab_only=True) as engine:
        pieces = engine.pieces()
        measured_ids = dict(zip(texts, engine.tokenize(list(texts.values())), strict=True))
        as_they_stand = engine.tokenize([raw[name] for name in changed])
        plain, with_ends = engine.tokenize(["a"])[0], engine.tokenize(["a"], add_special=True)[0]
    wrong_pieces = _compare_pieces(pieces, vocabulary, findings)
    differing = []
    for name, text in texts.items():
        expected = library.encode(text, add_special_tokens=False).ids
        if measured_ids[name] != expected:
            differing.append(name)
            _report_text(name, measured_ids[name], expected, vocabulary, findings)
    ends = {
        "bos": with_ends[: len(with_ends) - len(plain)] != [] and with_ends[-len(plain) :] == plain,
        "eos": with_ends != plain and with_ends[-len(plain) :] != plain,
    }
    for role, added in (("bos", vocabulary.add_bos), ("eos", vocabulary.add_eos)):
        if added is not None and added != ends[role]:
            findings.add(
                "check.added_ends",
                role,
                ends[role],
                added,
                f"The engine {'adds' if ends[role] else 'does not add'} the {role} token to a prompt, other than the "
                f"tokenizer. {_ADVICE}",
            )
    measured = {
        "ids": len(pieces),
        "ids_with_other_bytes": wrong_pieces,
        "texts": len(texts),
        "tokens": sum(map(len, measured_ids.values())),
        "texts_that_differ": differing,
        "texts_not_normalized": [
            name for name, ids in zip(changed, as_they_stand, strict=True) if ids != measured_ids[name]
        ],
    }
    return measured, findings


def _compare_pieces(pieces: list[bytes], vocabulary: Vocabulary, findings: Findings) -> int:
    wrong = 0
    for token, piece in enumerate(pieces):
        text = vocabulary.texts.get(token)
        if text is None:
            expected = b""
        elif token in vocabulary.added:
            expected = text.encode()
        else:
            expected = token_bytes(text)
        if piece != expected:
            wrong += 1
            findings.add(
                "check.token_bytes",
                f"id {token}",
                repr(piece),
                repr(expected),
                f"The engine writes other bytes for this token than the tokenizer. {_ADVICE}",
            )
    return wrong


def _report_text(
    name: str, measured: list[int], expected: list[int], vocabulary: Vocabulary, findings: Findings
) -> None:
    shorter = min(len(measured), len(expected))
    at = next((i for i in range(shorter) if measured[i] != expected[i]), shorter)

    def around(ids: list[int]) -> list[list[Any]]:
        return [[token, vocabulary.text(token)] for token in ids[max(0, at - 1) : at + _SHOWN]]

    findings.add(
        "check.tokenizing",
        f"text {name!r}, token {at}",
        around(measured),
        around(expected),
        f"The engine cuts this text of the corpus into other tokens than the tokenizer. {_ADVICE}",
    )


def _short(value: Any) -> Any:
    text = repr(value)
    return value if len(text) <= 200 else text[:197] + "..."


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of GPT-2's byte-level alphabet (bytes_to_unicode of openai/gpt-2, src/encoder.py).

    Printable Latin-1 stands for itself, the other bytes follow from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def token_bytes(text: str) -> bytes:
    """The bytes that a piece of a byte-level vocabulary stands for; a text outside the alphabet stands for itself."""
    try:
        return bytes(_BYTES[character] for character in text)
    except KeyError:
        return text.encode()
