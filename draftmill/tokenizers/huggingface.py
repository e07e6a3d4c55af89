"""Reads a Hugging Face tokenizer folder (tokenizer.json, tokenizer_config.json) into a `Vocabulary`.

Format: the serialised `Tokenizer` of huggingface/tokenizers; tokenizer_config.json as transformers writes it. Only
data is read: no class named in these files is ever loaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file, sha256_json
from draftmill.intake.bounded_json import read_object
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.vocabulary import MAX_TOKENS, ROLES, AddedToken, Vocabulary

MAX_TOKENIZER_BYTES = 128 << 20
MAX_SIDE_BYTES = 16 << 20
MAX_TEXT = 1 << 16
MAX_MERGES = 1 << 23
FLAGS = ("special", "normalized", "lstrip", "rstrip", "single_word")
PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
MODELS = {"BPE": "BPE", "Unigram": "UGM", "WordPiece": "WPM"}
"""tokenizers' model type -> llama.cpp's vocabulary type."""


def malformed(where: str, what: str, measured: Any, expected: Any) -> Refused:
    sentence = f"{where} cannot be used: {what}. Take a fresh copy from the repository, or name another donor."
    return Refused(Refusal("tokenizer.malformed", where, measured, expected, sentence))


def token_text(entry: Any) -> str | None:
    """A token of tokenizer_config.json or special_tokens_map.json: a string, or an object with "content"."""
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) else None


def read_tokenizer(folder: Path) -> Vocabulary:
    """The tokenizer of the folder: tokenizer.json, and tokenizer_config.json for roles and what is added.

    Raises Refused (tokenizer.malformed, intake.json_*) for a file that is not what it should be, and OSError without
    a tokenizer.json.
    """
    path = folder / "tokenizer.json"
    where = path.name
    document = read_object(path, where, MAX_TOKENIZER_BYTES)
    model = document.get("model")
    if not isinstance(model, dict):
        raise malformed(where, "it has no model", type(model).__name__, "object")
    kind = _kind(where, model)
    texts = _pieces(where, model)
    added = _added(where, document.get("added_tokens"), texts)
    id_of = {text: token for token, text in texts.items()}
    if not texts or len(id_of) != len(texts):
        raise malformed(where, "each id needs a text of its own", [len(texts), len(id_of)], "as many texts as ids")

    side = folder / "tokenizer_config.json"
    config = read_object(side, side.name, MAX_SIDE_BYTES) if side.is_file() else None
    roles = {role: token_text((config or {}).get(f"{role}_token")) for role in ROLES}
    adds = _template(document.get("post_processor"), config, roles)
    for role in ("bos", "eos"):
        value = (config or {}).get(f"add_{role}_token")
        if isinstance(value, bool):
            adds[role] = value
    return Vocabulary(
        source=str(path),
        kind=kind,
        texts=texts,
        size=max(texts) + 1,
        added=added,
        ids={role: id_of[text] for role, text in roles.items() if text in id_of},
        add_bos=adds.get("bos"),
        add_eos=adds.get("eos"),
        stated=_statements(where, document, model),
        unresolved={role: text for role, text in roles.items() if text is not None and text not in id_of},
        file_sha256=sha256_file(path),
    )


def _kind(where: str, model: Mapping[str, Any]) -> str:
    name = model.get("type", "BPE" if "merges" in model else None)
    if not isinstance(name, str) or name not in MODELS:
        raise malformed(where, "its model is of a type that llama.cpp does not know", name, sorted(MODELS))
    # llama.cpp's converter writes a BPE that falls back to bytes as "llama", its SentencePiece type.
    return "SPM" if name == "BPE" and model.get("byte_fallback") else MODELS[name]


def _put(where: str, texts: dict[int, str], token: Any, text: Any) -> None:
    if type(token) is not int or not 0 <= token < MAX_TOKENS:
        raise malformed(where, "the id of a token is not an integer in range", token, f"0..{MAX_TOKENS - 1}")
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise malformed(where, f"id {token} has no text of a sane length", repr(text)[:80], f"up to {MAX_TEXT}")
    if texts.setdefault(token, text) != text:
        raise malformed(where, f"id {token} has two texts", [texts[token], text], "one text")


def _pieces(where: str, model: Mapping[str, Any]) -> dict[int, str]:
    """id -> text of the model's own pieces: a mapping text -> id, or for Unigram a list of [text, score]."""
    vocab, listed = model.get("vocab"), model.get("type") == "Unigram"
    texts: dict[int, str] = {}
    if isinstance(vocab, dict) and not listed:
        for text, token in vocab.items():
            _put(where, texts, token, text)
        return texts
    if isinstance(vocab, list) and listed and all(isinstance(piece, list) and len(piece) == 2 for piece in vocab):
        for token, (text, _) in enumerate(vocab):
            _put(where, texts, token, text)
        return texts
    raise malformed(where, "model.vocab is of no known form", type(vocab).__name__, "text -> id, or [text, score]...")


def _added(where: str, entries: Any, texts: dict[int, str]) -> dict[int, AddedToken]:
    """The added tokens; their texts also go into `texts`."""
    added: dict[int, AddedToken] = {}
    if not isinstance(entries or [], list):
        raise malformed(where, "added_tokens is not a list", type(entries).__name__, "list")
    for entry in entries or []:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(flag), bool) for flag in FLAGS):
            raise malformed(where, "an added token lacks a flag", repr(entry)[:200], list(FLAGS))
        _put(where, texts, entry.get("id"), entry.get("content"))
        if entry["id"] in added:
            raise malformed(where, f"the added token {entry['id']} is there twice", entry["id"], "each once")
        added[entry["id"]] = AddedToken(entry["content"], **{flag: entry[flag] for flag in FLAGS})
    return added


def _merges(where: str, merges: Any) -> list[str]:
    """Merges in GGUF's form "left right"; a space inside a part becomes U+0120, as gguf.SpecialVocab writes it."""
    if not isinstance(merges, list) or len(merges) > MAX_MERGES:
        raise malformed(where, "model.merges is not a list of a sane length", type(merges).__name__, "list")
    lines = []
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not (isinstance(parts, list) and len(parts) == 2 and all(isinstance(p, str) and p for p in parts)):
            raise malformed(where, "a merge is not a pair of pieces", repr(merge)[:80], "[left, right]")
        lines.append(" ".join(part.replace(" ", "\u0120") for part in parts))
    return lines


def _statements(where: str, document: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    stated: dict[str, Any] = {name: document.get(name) for name in PIPELINE}
    if "merges" in model:
        stated["merges"] = _merges(where, model["merges"])
    # null, "" and false all mean "off" here, and versions of the library write them differently.
    options = {name: value for name, value in model.items() if name not in ("type", "vocab", "merges") and value}
    options |= {name: document[name] for name in ("truncation", "padding") if document.get(name)}
    if isinstance(model["vocab"], list):
        options["scores"] = sha256_json([score for _, score in model["vocab"]])
    return stated | {"options": options}


def _template(processor: Any, config: Mapping[str, Any] | None, roles: dict[str, str | None]) -> dict[str, bool]:
    """Whether a TemplateProcessing adds bos and eos, as gguf.SpecialVocab reads it (which writes the GGUF's keys).

    Like there, another token at the end than tokenizer_config.json's eos becomes the eos (`roles` is changed), and a
    bos that is written as an object is not recognised in the template.
    """
    adds: dict[str, bool] = {}
    steps = processor.get("processors", [processor]) if isinstance(processor, dict) else []
    for step in steps if isinstance(steps, list) else []:
        single = step.get("single") if isinstance(step, dict) and step.get("type") == "TemplateProcessing" else None
        if not isinstance(single, list) or len(single) < 2:
            continue
        first, last = (_template_token(part) for part in (single[0], single[-1]))
        if first:
            adds["bos"] = config is None or first == config.get("bos_token")
        if last:
            adds["eos"] = True
            if config is not None:
                roles["eos"] = last
    return adds


def _template_token(part: Any) -> str | None:
    special = part.get("SpecialToken") if isinstance(part, dict) else None
    return special.get("id") if isinstance(special, dict) and isinstance(special.get("id"), str) else None
