"""Reads the vocabulary of a GGUF file into a `Vocabulary`.

Keys: the GGUF specification's tokenizer.ggml.*; reading as in src/llama-vocab.cpp (llama_vocab::impl::load).
"""

from math import isfinite
from pathlib import Path
from typing import Any

from draftmill.gguf.header import read_header
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.vocabulary import MAX_TOKENS, AddedToken, Vocabulary, padding_text

_GEMMA4 = "gemma4"
KINDS = {"gpt2": "BPE", _GEMMA4: "BPE", "llama": "SPM", "bert": "WPM", "t5": "UGM", "rwkv": "RWKV"}
"""tokenizer.ggml.model -> vocabulary type."""

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
TYPES = {_UNKNOWN: "unknown", _CONTROL: "control", _USER_DEFINED: "user-defined", _UNUSED: "unused", 6: "byte"}
"""llama_token_type, all but normal."""
_PER_TOKEN_CODES = {"token_type": "tokenizer.gguf_types", "scores": "tokenizer.gguf_scores"}
_ROLE_KEYS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id", "unk": "unknown_token_id"}


def read_gguf(path: Path) -> Vocabulary:
    """The vocabulary of a GGUF file.

    Flags of added tokens, normalizer, pre-tokenizer rules, post-processor and decoder are not in a GGUF: they stay
    unstated. It states token_types ([id, name] of each token that is not normal), and scores ([id, score]) where it has
    them. Padding (`[PADn]` of type unused) counts into `size` only.
    Raises Refused: gguf.* from the header, tokenizer.gguf_* for a vocabulary that the runtime would not load.
    """
    fields = read_header(path).fields
    where = path.name
    model = fields.get("tokenizer.ggml.model")
    tokens = fields.get("tokenizer.ggml.tokens")
    if not isinstance(model, str) or model not in KINDS:
        raise _refused("tokenizer.gguf_model", where, model, sorted(KINDS), "it names no tokenizer that is known here")
    if not isinstance(tokens, list) or not 0 < len(tokens) <= MAX_TOKENS or not isinstance(tokens[0], str):
        count = len(tokens) if isinstance(tokens, list) else None
        raise _refused("tokenizer.gguf_tokens", where, count, f"1..{MAX_TOKENS} texts", "it carries no token list")
    types = _per_token(fields, "token_type", int, len(tokens), where) or [_NORMAL] * len(tokens)
    scores = _per_token(fields, "scores", float, len(tokens), where)

    named = {token: text or f"[EMPTY_{token}]" for token, text in enumerate(tokens)}
    different = len(set(named.values()))
    if different != len(named):
        raise _refused(
            "tokenizer.gguf_text_twice",
            where,
            different,
            len(named),
            "two ids share a text, on which the runtime aborts",
        )
    texts = {t: text for t, text in named.items() if not (types[t] == _UNUSED and text == padding_text(t))}
    added = {t: AddedToken(text) for t, text in texts.items() if types[t] in (_UNKNOWN, _CONTROL, _USER_DEFINED)}
    kinds = [[t, TYPES.get(types[t], f"type {types[t]}")] for t in texts if types[t] != _NORMAL]
    stated: dict[str, Any] = {"token_types": kinds}
    if scores is not None:
        stated["scores"] = [[t, scores[t] if isfinite(scores[t]) else str(scores[t])] for t in texts]
    if (merges := fields.get("tokenizer.ggml.merges")) is not None:
        if not isinstance(merges, list) or not all(isinstance(merge, str) for merge in merges[:1]):
            raise _refused("tokenizer.gguf_merges", where, type(merges).__name__, "texts", "its merges are no texts")
        stated["merges"] = merges
    ids = {role: fields.get(f"tokenizer.ggml.{key}") for role, key in _ROLE_KEYS.items()}
    pre = fields.get("tokenizer.ggml.pre")
    if model == _GEMMA4:
        pre = _GEMMA4  # which the runtime takes whatever the key says, if it is there
    return Vocabulary(
        source=str(path),
        kind=KINDS[model],
        texts=texts,
        size=len(tokens),
        added=added,
        # The runtime warns about an id outside the list and goes on as if it were not there.
        ids={role: token for role, token in ids.items() if type(token) is int and 0 <= token < len(tokens)},
        add_bos=_flag(fields, "add_bos_token"),
        add_eos=_flag(fields, "add_eos_token"),
        stated=stated,
        unresolved={},
        pre=pre if isinstance(pre, str) else None,
    )


def _per_token(fields: dict[str, Any], key: str, form: type, count: int, where: str) -> list[Any] | None:
    """The array tokenizer.ggml.`key`, None where there is none. GGUF arrays are of one type throughout."""
    values = fields.get(f"tokenizer.ggml.{key}")
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != count or not isinstance(values[0], form):
        found = len(values) if isinstance(values, list) else None
        raise _refused(_PER_TOKEN_CODES[key], where, found, count, f"not every token has its {key}")
    return values


def _flag(fields: dict[str, Any], name: str) -> bool | None:
    value = fields.get(f"tokenizer.ggml.{name}")
    return value if isinstance(value, bool) else None


def _refused(code: str, where: str, measured: Any, expected: Any, what: str) -> Refused:
    sentence = f"{where} cannot be compared: {what}. Convert the model again, or give a file of a text model."
    return Refused(Refusal(code, where, measured, expected, sentence))
