"""The config's part of the gate: is it readable, and is what it states possible?"""

from dataclasses import asdict
from typing import Any

from draftmill.dflash.config import CONFIG_LIMIT, VENDOR_MODEL_TYPE, DraftConfig, survey_config
from draftmill.dflash.gate_files import PackageFiles
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_table import home_of
from draftmill.dflash.remark import Remark
from draftmill.intake.bounded_json import parse_object
from draftmill.outcome import Refusal, Refused

NAME = "config.json"
SHIFTED, KNOWN = "dflash.layer_ids_shifted", "dflash.layer_ids_known"


def check_config(files: PackageFiles, ledger: Ledger) -> DraftConfig | None:
    """The config, which may be refused; None when it cannot be read or does not say which tensors there are."""
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
    config, findings = survey_config(content)
    for refusal in findings.refusals:
        ledger.refuse(home_of(refusal.code, None, "config.keys"), refusal)
    if config:
        _say(config, ledger)
    return config


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


def _say(config: DraftConfig, ledger: Ledger) -> None:
    second = config.second
    ids, depth = list(config.target_layer_ids), config.num_target_layers
    window = f"a window of {config.sliding_window}" if config.sliding_window else "no window"
    stated = sum(config.stated(key) for key in config.places)
    ledger.passes("config.architecture", config.generation, f"generation {config.generation}")
    ledger.passes("config.keys", stated, f"{stated} values are stated")
    ledger.passes("config.places", stated, "no two places disagree")
    ledger.passes("config.extensions", "ordinary", "no key asks for what no draft computes")
    sizes = {
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
    }
    ledger.passes("config.sizes", sizes, ", ".join(f"{name} {value}" for name, value in sizes.items()))
    ledger.passes("config.rope", config.rope.type, f"{config.rope.type}, base {config.rope.theta:g}")
    causal = "causal" if config.causal else "not causal"
    ledger.passes("config.visibility", causal, f"{len(config.layer_types)} layers, {window}, {causal} in the block")
    ledger.passes("config.mask", config.mask_token_id, f"{config.mask_token_id} of {config.vocab_size} tokens")
    of = "a target of unstated depth" if depth is None else f"{depth} target layers"
    ledger.passes("config.layer_ids", ids, f"{ids} of {of}")
    by_code = {remark.code: remark for remark in config.remarks}
    if ledger.refused("config.layer_ids"):
        pass  # of ids that are impossible nothing more is said
    elif SHIFTED in by_code:
        ledger.undetermined("config.layer_ids_base", ids, by_code[SHIFTED].sentence, withholds=False)
    else:
        known = by_code[KNOWN].sentence if KNOWN in by_code else "nothing suggests that they are shifted by one"
        ledger.passes("config.layer_ids_base", ids, known)
    named = config.weight_file
    ledger.passes("config.weight_path", named, named or "none is named: the usual one is taken")
    if second:
        ledger.passes("config.top_k", second.selector_top_k, f"{second.selector_top_k} of {config.vocab_size} tokens")


def remarks_on(config: DraftConfig) -> tuple[Remark, ...]:
    """What the config leaves open or says that nothing here reads; a shifted layer id is a check of its own."""
    unread = [
        Remark("gate.unread_key", f"{NAME}:{place}", "Nothing here reads this key, so what it says is not proven.")
        for place in config.unknown
    ]
    return (*(remark for remark in config.remarks if remark.code not in (SHIFTED, KNOWN)), *unread)


def facts_of(config: DraftConfig) -> dict[str, Any]:
    """The statements that the container was held against."""
    left_out = ("places", "remarks", "unknown", "vendor")
    facts = {name: value for name, value in asdict_plain(config).items() if name not in left_out}
    facts["rope"] = {"theta": config.rope.theta, "type": config.rope.type, "scaling": dict(config.rope.scaling)}
    facts["second"] = asdict(config.second) if config.second else None
    return facts


def asdict_plain(config: DraftConfig) -> dict[str, Any]:
    """The fields as they are: `asdict` would copy the read-only mapping of places, and cannot."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(config).items()}
