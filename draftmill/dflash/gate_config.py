"""The config's part of the gate: is it readable, and is what it states possible?"""

from dataclasses import asdict
from typing import Any

from draftmill.dflash.config import CONFIG_LIMIT, VENDOR_MODEL_TYPE, Survey, survey_config
from draftmill.dflash.config_keys import SECOND
from draftmill.dflash.gate_files import PackageFiles
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_table import CHECKS, home_of
from draftmill.dflash.remark import Remark
from draftmill.intake.bounded_json import parse_object
from draftmill.outcome import Refusal, Refused

NAME = "config.json"
_IDS = tuple(check.id for check in CHECKS if check.id.startswith("config."))
_SIZES = {
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
SHIFTED, KNOWN = "dflash.layer_ids_shifted", "dflash.layer_ids_known"


def check_config(files: PackageFiles, ledger: Ledger) -> Survey | None:
    """What the config says, in part where something in it is refused; None when it cannot be read."""
    survey = _survey(files, ledger)
    if survey is None:
        ledger.stop_unsaid(_IDS, f"{NAME} cannot be read")
    return survey


def _survey(files: PackageFiles, ledger: Ledger) -> Survey | None:
    if files.absent(NAME):
        sentence = "A package is a folder with config.json in it; give that folder, or download the package again."
        ledger.refuse("config.form", Refusal("dflash.config_missing", NAME, "no such file", "a file", sentence))
        return None
    opened = files.open(NAME)
    data = files.content(opened, CONFIG_LIMIT) if opened else None
    if data is None:
        return None
    try:
        content = _parse(data)
    except Refused as refused:
        ledger.refuse("config.form", *refused.refusals)
        return None
    ledger.passes("config.form", len(data), f"{len(content)} keys in {len(data)} bytes")
    _check_model_type(content.get("model_type"), ledger)
    survey = survey_config(content)
    for refusal in survey.findings.refusals:
        ledger.refuse(home_of(refusal.code, None, "config.keys"), refusal)
    _say(survey, ledger)
    return survey


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > CONFIG_LIMIT:
        sentence = f"A config has two thousand bytes, and may have {CONFIG_LIMIT}; download it again."
        raise Refused(Refusal("dflash.config_too_large", NAME, f"more than {CONFIG_LIMIT}", CONFIG_LIMIT, sentence))
    return parse_object(data, NAME)


def _check_model_type(value: Any, ledger: Ledger) -> None:
    if value == VENDOR_MODEL_TYPE:
        ledger.passes("config.model_type", value, f"model_type is {value}")
        return
    shown = value if isinstance(value, int | None) else repr(value)[:80]
    ledger.refuse(
        "config.model_type",
        Refusal(
            "gate.model_type",
            f"{NAME}:model_type",
            shown,
            VENDOR_MODEL_TYPE,
            "This is not the config of a FastFlowLM draft package: an upstream checkpoint is packed with `draftmill "
            "dflash pack`, and a main model's package has no draft to gate.",
        ),
    )


_LOOKS_AT: dict[str, tuple[str, ...]] = {
    "config.architecture": ("architectures",),
    "config.sizes": ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    "config.rope": ("rope_theta", "rope_scaling"),
    "config.visibility": ("num_hidden_layers", "layer_types", "sliding_window", "use_sliding_window", "is_causal"),
    "config.mask": ("mask_token_id", "vocab_size"),
    "config.layer_ids": ("target_layer_ids", "num_target_layers"),
    "config.layer_ids_base": ("target_layer_ids", "num_target_layers"),
    "config.top_k": ("architectures", "selector_top_k", "vocab_size"),
}
"""Check -> the keys whose values it judges: with one of them in doubt it is not made."""


def _say(survey: Survey, ledger: Ledger) -> None:
    for check, names in _LOOKS_AT.items():
        if why := [survey.doubts[name] for name in names if name in survey.doubts]:
            ledger.stop(check, " and ".join(why))
    values = survey.values
    window, causal = values.get("sliding_window"), "causal" if values.get("causal") else "not causal"
    ids, depth = list(values.get("target_layer_ids", ())), values.get("num_target_layers")
    stated = sum(survey.stated(key) for key in survey.places)
    ledger.passes("config.architecture", survey.generation, f"generation {survey.generation}")
    ledger.passes("config.keys", stated, f"{stated} values are stated")
    ledger.passes("config.places", stated, "no two places disagree")
    ledger.passes("config.extensions", "ordinary", "no key asks for what no draft computes")
    sizes = {name: values.get(key) for name, key in _SIZES.items()}
    ledger.passes("config.sizes", sizes, ", ".join(f"{name} {value}" for name, value in sizes.items()))
    if rope := values.get("rope"):
        ledger.passes("config.rope", rope.type, f"{rope.type}, base {rope.theta:g}")
    said = f"{len(values.get('layer_types', ()))} layers, {f'a window of {window}' if window else 'no window'}"
    ledger.passes("config.visibility", causal, f"{said}, {causal} in the block")
    mask, vocabulary = values.get("mask_token_id"), values.get("vocab_size")
    ledger.passes("config.mask", mask, f"{mask} of {vocabulary} tokens")
    of = "a target of unstated depth" if depth is None else f"{depth} target layers"
    ledger.passes("config.layer_ids", ids, f"{ids} of {of}")
    by_code = {remark.code: remark for remark in survey.remarks}
    if ledger.refused("config.layer_ids"):
        ledger.stop("config.layer_ids_base", "the ids are no layers of the target")
    elif SHIFTED in by_code:
        ledger.undetermined("config.layer_ids_base", ids, by_code[SHIFTED].sentence, withholds=False)
    else:
        known = by_code[KNOWN].sentence if KNOWN in by_code else "nothing suggests that they are shifted by one"
        ledger.passes("config.layer_ids_base", ids, known)
    named = survey.weight_file
    ledger.passes("config.weight_path", named, named or "none is named: the usual one is taken")
    if survey.generation == 2:
        top_k = values.get("selector_top_k")
        ledger.passes("config.top_k", top_k, f"{top_k} of {vocabulary} tokens")


def remarks_on(survey: Survey) -> tuple[Remark, ...]:
    """What the config leaves open or says that nothing here reads; a shifted layer id is a check of its own."""
    unread = [
        Remark("gate.unread_key", f"{NAME}:{place}", "Nothing here reads this key, so what it says is not proven.")
        for place in survey.unknown
    ]
    return (*(remark for remark in survey.remarks if remark.code not in (SHIFTED, KNOWN)), *unread)


def facts_of(survey: Survey) -> dict[str, Any]:
    """The statements that the container was held against; what is refused or in doubt is not among them."""
    facts = {name: list(value) if isinstance(value, tuple) else value for name, value in survey.values.items()}
    if rope := survey.values.get("rope"):
        facts["rope"] = asdict(rope)
    second = {key.name: facts.pop(key.name) for key in SECOND if key.name in facts}
    return {"generation": survey.generation, **facts, "second": second or None, "weight_file": survey.weight_file}
