"""The metadata of a GGUF draft -> its `DraftConfig`, or every reason why it does not give one.

Each key is read into the place that it has in a config.json, so that the same checks judge all forms; findings name
the GGUF's keys. What llama.cpp fills in silently where a key is absent is refused by name. Ids of target layers are
stored as L+1 and given as L. A real is the shortest decimal that gives the stored float32, as config.json would say it.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf.constants import GGUFValueType

from draftmill.dflash.config import DraftConfig, survey_config
from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.config_places import shown
from draftmill.dflash.gguf_form import keys
from draftmill.gguf.header import GGUFHeader
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal, Refused

_ADVICE = "Convert the draft again from its checkpoint, with `draftmill dflash convert`."
_PLACES = {each.config: each.key for each in (*keys.REQUIRED, *keys.SECOND, *keys.OPTIONAL, *keys.ROPE_SCALING)} | {
    "target_layer_ids": keys.TARGET_LAYERS,
    "is_causal": keys.CAUSAL,
    "sliding_window": keys.SLIDING_WINDOW,
    "use_sliding_window": keys.SLIDING_PATTERN,
    "layer_types": keys.SLIDING_PATTERN,
    "rope_parameters.rope_type": keys.ROPE_TYPE,
    **{each.config.replace("parameters", "scaling"): each.key for each in keys.ROPE_SCALING},
    "vocab_size": keys.TOKENS,
    "architectures": "general.architecture",
}
"""Place in config.json -> the GGUF's key."""


class _Fields:
    """The header's keys, read by form; what is wrong becomes a finding."""

    def __init__(self, header: GGUFHeader, where: str, findings: Findings) -> None:
        self.fields, self._types = header.fields, header.types
        self._where, self._findings = where, findings
        self._read: set[str] = set()

    def refuse(self, code: str, key: str, measured: Any, expected: Any, sentence: str) -> None:
        self._findings.add(f"dflash.{code}", f"{self._where}:{key}", shown(measured), expected, sentence)

    def raw(self, key: str) -> Any:
        self._read.add(key)
        return self.fields.get(key)

    def number(self, key: keys.GgufKey, *, needed: bool) -> int | float | None:
        value = self.raw(key.key)
        if value is None:
            if needed:
                self.refuse(
                    "gguf_key_missing",
                    key.key,
                    None,
                    f"a {key.form} number",
                    f"The file does not state {key.key} and no default is invented for it ({key.assumed}). {_ADVICE}",
                )
            return None
        if key.form == "whole" and type(value) is int:
            return value
        if key.form == "real" and type(value) is float:
            return _shortest(value) if self._types[key.key][0] == GGUFValueType.FLOAT32 else value
        self.refuse(
            "gguf_value_form", key.key, value, f"a {key.form} number", f"{key.key} is of another form. {_ADVICE}"
        )
        return None

    def unread(self) -> tuple[str, ...]:
        return tuple(
            name for name in self.fields if name.startswith(f"{keys.ARCHITECTURE}.") and name not in self._read
        )


def read_gguf_config(header: GGUFHeader, where: str, *, causal: bool | None = None) -> DraftConfig:
    """where: the file's name, for findings. causal: what the caller knows, for files that do not state it.

    Raises Refused with every finding: dflash.gguf_architecture, gguf_key_missing, gguf_value_form, gguf_key_unknown,
    gguf_value_unsupported, gguf_window, gguf_rope_scaling, gguf_causal_full_layers, and what `parse_config` raises,
    at the GGUF's keys.
    """
    architecture = header.fields.get("general.architecture")
    if architecture != keys.ARCHITECTURE:
        raise Refused(
            Refusal(
                "dflash.gguf_architecture",
                f"{where}:general.architecture",
                shown(architecture),
                keys.ARCHITECTURE,
                "This GGUF is of another architecture, so it is no DFlash draft; give the draft and not its target.",
            )
        )
    findings = Findings()
    fields = _Fields(header, where, findings)
    second = any(each.key in header.fields for each in keys.SECOND) or "selector_hidden.weight" in header.tensors
    content: dict[str, Any] = {"architectures": ["DFlash2DraftModel" if second else "DFlashDraftModel"]}
    for each in (*keys.REQUIRED, *(keys.SECOND if second else ())):
        _put(content, each.config, fields.number(each, needed=True))
    for each in keys.OPTIONAL:
        _put(content, each.config, fields.number(each, needed=False))
    tokens = fields.raw(keys.TOKENS)
    if isinstance(tokens, list):
        content["vocab_size"] = len(tokens)
    else:
        fields.refuse(
            "gguf_key_missing", keys.TOKENS, None, "a list of texts", f"The file has no vocabulary. {_ADVICE}"
        )
    _put(content, "target_layer_ids", _target_layers(fields))
    _visibility(fields, content)
    _rope(fields, content)
    _ordinary(fields, content)
    for name in fields.unread():
        fields.refuse(
            "gguf_key_unknown",
            name,
            fields.fields[name],
            "absent",
            f"Nothing here knows what {name} changes about the draft, so the file is not read. {_ADVICE}",
        )
    findings.raise_if_any()
    survey = survey_config(content, where=where, causal=causal)
    findings.extend([replace(each, where=_named(each.where, where)) for each in survey.findings.refusals])
    findings.raise_if_any()
    config = survey.config
    assert config  # noqa: S101 - else there were findings
    if config.causal and FULL in config.layer_types:
        fields.refuse("gguf_causal_full_layers", keys.CAUSAL, True, False, CAUSAL_FULL_LAYERS)
        findings.raise_if_any()
    return replace(
        config,
        places=MappingProxyType(
            {name: tuple(_PLACES.get(at, at) for at in ats) for name, ats in config.places.items()}
        ),
        remarks=tuple(replace(each, where=_PLACES.get(each.where, each.where)) for each in config.remarks),
    )


CAUSAL_FULL_LAYERS = (
    "A GGUF has one causality for the whole draft, and llama.cpp makes full layers causal with it, which no DFlash "
    "draft's full layers are; this draft has such layers, so that its GGUF would be another draft."
)


def _put(content: dict[str, Any], place: str, value: Any) -> None:
    section, dot, name = place.rpartition(".")
    if value is not None:
        (content.setdefault(section, {}) if dot else content)[name] = value


def _named(refused_at: str, where: str) -> str:
    place = refused_at.removeprefix(f"{where}:")
    return f"{where}:{_PLACES.get(place, place)}"


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


def _target_layers(fields: _Fields) -> list[int] | None:
    stored = fields.raw(keys.TARGET_LAYERS)
    if isinstance(stored, list) and stored and all(type(each) is int for each in stored):
        return [each - 1 for each in stored]
    fields.refuse(
        "gguf_key_missing" if stored is None else "gguf_value_form",
        keys.TARGET_LAYERS,
        stored,
        "a list of whole numbers",
        f"Which layers of the target the draft reads is not stated, and cannot be told from the weights. {_ADVICE}",
    )
    return None


def _visibility(fields: _Fields, content: dict[str, Any]) -> None:
    window, pattern = fields.raw(keys.SLIDING_WINDOW), fields.raw(keys.SLIDING_PATTERN)
    causal, layers = fields.raw(keys.CAUSAL), content.get("num_hidden_layers")
    if causal is not None and type(causal) is not bool:
        fields.refuse("gguf_value_form", keys.CAUSAL, causal, "true or false", f"It is no flag. {_ADVICE}")
    else:
        _put(content, "is_causal", causal)
    if window is None and pattern is None:
        return
    flags = isinstance(pattern, list) and all(type(each) is bool for each in pattern)
    if type(window) is not int or not flags or len(pattern) != (layers or len(pattern)):
        fields.refuse(
            "gguf_window",
            keys.SLIDING_PATTERN if type(window) is int else keys.SLIDING_WINDOW,
            [window, pattern],
            "a window, and a flag for each layer",
            f"Which layers slide over which window does not follow from the file. {_ADVICE}",
        )
        return
    content["layer_types"] = [SLIDING if slides else FULL for slides in pattern]
    content |= {"sliding_window": window, "use_sliding_window": any(pattern)}


def _rope(fields: _Fields, content: dict[str, Any]) -> None:
    kind = fields.raw(keys.ROPE_TYPE)
    stated = {each.key: value for each in keys.ROPE_SCALING if (value := fields.raw(each.key)) is not None}
    if kind in (None, "none"):
        if stated:
            fields.refuse(
                "gguf_rope_scaling",
                keys.ROPE_TYPE,
                kind,
                "yarn",
                f"The file states {', '.join(stated)} and no kind of scaling that has them; llama.cpp takes linear "
                f"scaling where the kind is absent. {_ADVICE}",
            )
        return
    _put(content, "rope_parameters.rope_type", kind)
    for each in keys.ROPE_SCALING:
        _put(content, each.config, fields.number(each, needed=False))


def _ordinary(fields: _Fields, content: Mapping[str, Any]) -> None:
    """Keys that have to say the ordinary thing where they stand: nothing here computes anything else."""
    head, vocabulary = content.get("head_dim"), content.get("vocab_size")
    half = head // 2 if isinstance(head, int) else None
    table: dict[str, tuple[tuple[Any, ...], str]] = {
        "sample_from_anchor": ((False,), "the anchor row predicts as well, so every draft moves by one row"),
        "has_confidence_head": ((False,), "it is a DSpark draft, with heads that DFlash does not have"),
        "attention.value_scale": ((1.0,), "what attention gives is scaled"),
        "attention.value_length": ((head,), "values have another width than keys"),
        "rope.dimension_count": ((head,), "only a part of each head is rotated"),
        "rope.dimension_sections": (([half, 0, 0, 0], [0, 0, 0, 0]), "positions have several axes"),
        "vocab_size": ((vocabulary,), "it has another vocabulary than its token list"),
        "hidden_act": (("silu",), "its MLP is gated by another function than SiLU"),
    }
    for name, (ordinary, change) in table.items():
        value = fields.raw(keys.key(name))
        unknown = ordinary[0] is None or ordinary[0] == [None, 0, 0, 0]  # and what that depends on is a finding already
        if value is not None and value not in ordinary and not unknown:
            fields.refuse(
                "gguf_value_unsupported",
                keys.key(name),
                value,
                ordinary[0],
                f"{keys.key(name)} changes the draft: {change}. Nothing here computes that. Use another draft.",
            )
