"""Which special tokens a tokenizer adds around a text: tokenizer.ggml.add_bos_token and its like.

Source: SpecialVocab of llama.cpp's gguf-py (gguf/vocab.py at the pinned converter's commit; the published gguf 0.19.0
reads these files differently). What that code would have to guess at is refused.
"""

from collections.abc import Mapping
from typing import Any

from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.huggingface import token_text

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def added_tokens(processor: Any, side: Mapping[str, Any]) -> dict[str, bool]:
    """role -> whether it is added, for the roles that tokenizer.json's post-processor or `side` speaks of.

    processor: tokenizer.json's post_processor; side: tokenizer_config.json.
    Raises Refused: convert.post_processor, convert.tokenizer_disagrees.
    """
    adds: dict[str, bool] = {}
    for step in _steps(processor):
        if step.get("type") == "ByteLevel":
            adds.setdefault("bos", False)
            adds.setdefault("eos", False)
        elif step.get("type") == "TemplateProcessing":
            adds |= _template(step, side)
        else:
            raise _unknown(step.get("type"), "ByteLevel and TemplateProcessing")
    for role in _ROLES:
        wanted = side.get(f"add_{role}_token")
        if isinstance(wanted, bool) and adds.setdefault(role, wanted) != wanted:
            raise Refused(
                Refusal(
                    "convert.tokenizer_disagrees",
                    f"tokenizer_config.json:add_{role}_token",
                    wanted,
                    adds[role],
                    "tokenizer.json's post-processor says otherwise, and tools differ in which one they follow; "
                    "mend the files, or try --converter stock.",
                )
            )
    return adds


def _steps(processor: Any) -> list[dict[str, Any]]:
    if processor is None:
        return []
    steps = processor.get("processors", [processor]) if isinstance(processor, dict) else None
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise _unknown(type(processor).__name__, "an object, or a sequence of them")
    return steps


def _template(step: dict[str, Any], side: Mapping[str, Any]) -> dict[str, bool]:
    """Understood: [bos] A, and for a pair the same twice. Anything else is refused."""
    bos = token_text(side.get("bos_token"))
    single, pair = _parts(step.get("single")), _parts(step.get("pair"))
    if single == ["A"] and pair in ([], ["A", "B"]):
        return {}
    if bos is not None and single == [f"<{bos}>", "A"]:
        if pair in ([], [f"<{bos}>", "A", "B"]):
            return {"bos": True}
        if pair == [f"<{bos}>", "A", f"<{bos}>", "B"]:
            return {"bos": True, "sep": False}
    raise _unknown({"single": single, "pair": pair}, f"a template that adds nothing, or the bos {bos!r} in front")


def _parts(template: Any) -> list[str]:
    """A template as a list: "A" and "B" for the sequences, "<text>" for a special token."""
    parts = []
    for part in template if isinstance(template, list) else []:
        kind, value = next(iter(part.items())) if isinstance(part, dict) and len(part) == 1 else ("", None)
        name = value.get("id") if isinstance(value, dict) else None
        if kind not in ("Sequence", "SpecialToken") or not isinstance(name, str):
            raise _unknown(str(part)[:80], "Sequence or SpecialToken, each with an id")
        parts.append(name if kind == "Sequence" else f"<{name}>")
    return parts


def _unknown(measured: Any, expected: str) -> Refused:
    return Refused(
        Refusal(
            "convert.post_processor",
            "tokenizer.json:post_processor",
            measured,
            expected,
            "The native converter does not know what this post-processor adds to a text; try --converter stock.",
        )
    )
