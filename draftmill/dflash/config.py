"""A DFlash draft as its config.json declares it: both generations, FastFlowLM packages and upstream checkpoints.

Each value is read from every place that a published config has it in, and two places that disagree are a refusal. Keys
that change the result have no default here. Definition of the keys: dflash.md sections 1, 3.4 and 5.1, q4nx.md 6 and 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from draftmill.dflash import config_keys as keys
from draftmill.dflash.config_places import Places, Stated
from draftmill.dflash.config_sizes import check_sizes, mask_remarks
from draftmill.dflash.geometry import Geometry, Second
from draftmill.dflash.layer_ids import check_layer_ids, remarks_on, spread_evenly
from draftmill.dflash.remark import Remark
from draftmill.dflash.rope import Rope, read_rope
from draftmill.dflash.unsupported import check_unsupported
from draftmill.dflash.visibility import DEFAULT, read_visibility
from draftmill.dflash.weight_file import stated_weight_file
from draftmill.intake.bounded_json import read_object
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal, Refused

ARCHITECTURES: dict[str, Literal[1, 2]] = {"DFlashDraftModel": 1, "DFlash2DraftModel": 2}
"""Architecture -> generation."""
VENDOR_MODEL_TYPE = "dflash"
"""model_type of FastFlowLM's packages; upstream checkpoints carry their target's family."""
CONFIG_LIMIT = 1 << 20
"""Bytes. A real one has two thousand."""


@dataclass(frozen=True)
class DraftConfig:
    """Sizes in elements, window in positions.

    vendor: a FastFlowLM package. layer_types: one a layer. sliding_window: None when no layer slides.
    causal: whether sliding layers are causal inside the block. target_layer_ids: outputs of 0-based target layers, in
    the order of fc's columns. places: key -> where its value stands, or "(default)", "(derived)", "(told)".
    unknown: dotted places that nothing here reads. weight_file: what the config names, None for the usual name.
    """

    generation: Literal[1, 2]
    vendor: bool
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope: Rope
    layer_types: tuple[str, ...]
    sliding_window: int | None
    causal: bool
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    num_target_layers: int | None = None
    input_embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    max_position_embeddings: int | None = None
    second: Second | None = None
    weight_file: str | None = None
    places: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    remarks: tuple[Remark, ...] = field(default=(), compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)

    @property
    def taps(self) -> int:
        """How many target layers are read."""
        return len(self.target_layer_ids)

    def stated(self, key: str) -> bool:
        """Whether the config itself gives the key's value."""
        return is_stated(self.places, key)


@dataclass(frozen=True)
class Survey:
    """What a config says, as far as it can be relied on although something in it may be refused.

    generation: None when it cannot be told. values: fields of `DraftConfig` -> value, without those in doubt; doubts:
    name of a key -> why, as a clause. config: the whole, None when anything is refused. The rest as in `DraftConfig`.
    """

    generation: Literal[1, 2] | None
    values: Mapping[str, Any]
    doubts: Mapping[str, str]
    config: DraftConfig | None
    findings: Findings
    places: Mapping[str, tuple[str, ...]]
    remarks: tuple[Remark, ...]
    unknown: tuple[str, ...]
    weight_file: str | None

    @property
    def geometry(self) -> Geometry | None:
        """None when it is not known which tensors there are."""
        if self.generation is None or "num_hidden_layers" not in self.values:
            return None
        sizes = {key.name: self.values.get(key.name, 0) for key in keys.SIZES}
        second = Second(**{key.name: self.values.get(key.name, 0) for key in keys.SECOND})
        taps = len(self.values.get("target_layer_ids", ()))
        return Geometry(self.generation, **sizes, taps=taps, second=second if self.generation == 2 else None)

    def stated(self, key: str) -> bool:
        """Whether the config itself gives the key's value."""
        return is_stated(self.places, key)


def is_stated(places: Mapping[str, tuple[str, ...]], key: str) -> bool:
    """Whether a value stands in the config, and is no default, consequence or thing that the caller told."""
    return any(not place.startswith("(") for place in places.get(key, ()))


def read_config(folder: Path, *, causal: bool | None = None) -> DraftConfig:
    """The config.json of a package or checkpoint.

    Raises Refused (dflash.config_missing, what `read_object` and `parse_config` raise), OSError.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise Refused(
            Refusal(
                "dflash.config_missing",
                "config.json",
                "no such file",
                "a file",
                "A package or checkpoint is a folder with config.json in it; give that folder.",
            )
        )
    return parse_config(read_object(path, "config.json", CONFIG_LIMIT), causal=causal)


def parse_config(content: Mapping[str, Any], *, where: str = "config.json", causal: bool | None = None) -> DraftConfig:
    """causal: what the caller knows about sliding layers, for configs that do not state it.

    Raises Refused with every finding: dflash.architecture_missing, architecture_unknown, generation_contradicted,
    key_missing, value_invalid, conflict, section_not_object, heads_indivisible, head_dim_odd, mask_outside_vocabulary,
    group_indivisible, top_k_above_vocabulary, unsupported_key, weight_path, and those of `rope`, `visibility` and
    `layer_ids`.
    """
    survey = survey_config(content, where=where, causal=causal)
    survey.findings.raise_if_any()
    assert survey.config  # noqa: S101 - else there were findings
    return survey.config


def survey_config(content: Mapping[str, Any], *, where: str = "config.json", causal: bool | None = None) -> Survey:
    """As `parse_config`, without raising: what can be relied on beside what is refused."""
    findings = Findings()
    remarks: list[Remark] = []
    places = Places(content, where, findings)
    vendor = places.raw("model_type") == VENDOR_MODEL_TYPE
    generation = _generation(places, vendor, remarks)
    found: dict[str, Stated | None] = {key.name: places.need(key) for key in keys.SIZES}

    def value(name: str) -> Any:
        stated = found.get(name)
        return stated.value if stated else None

    rope = read_rope(places)
    layers, target_layers = value("num_hidden_layers"), places.read(keys.NUM_TARGET_LAYERS)
    depth = target_layers.value if target_layers else None
    for key in (keys.RMS_EPS, keys.BLOCK_SIZE, keys.MASK_TOKEN_ID):
        found[key.name] = places.need(key)
    found["target_layer_ids"] = places.need(keys.TARGET_LAYER_IDS, _evenly(depth, layers))
    for key in (keys.INPUT_EMBEDDING_SCALE, keys.OUTPUT_MULTIPLIER, keys.FINAL_LOGIT_SOFTCAPPING):
        found[key.name] = places.read(key)
    found["max_position_embeddings"] = places.read(keys.MAX_POSITION_EMBEDDINGS)
    for key in keys.SECOND:
        found[key.name] = _second(places, key, generation)
    visibility = read_visibility(places, layers, vendor, causal, remarks)
    weight_file = stated_weight_file(places)
    check_unsupported(places, vendor, value("hidden_size"), value("vocab_size"), remarks)
    check_sizes(places, value)
    remarks += mask_remarks(places, value("mask_token_id"))
    if ids := found["target_layer_ids"]:
        check_layer_ids(places, ids.places[0], ids.value, depth)
        if generation:
            remarks += remarks_on(
                ids.value,
                place=ids.places[0],
                generation=generation,
                layers=layers,
                hidden_size=value("hidden_size"),
                mask_token_id=value("mask_token_id"),
                target_layers=depth,
            )
    found["num_target_layers"], found["rope_theta"] = target_layers, places.read(keys.ROPE_THETA)
    at = {name: stated.places if stated else (DEFAULT,) for name, stated in found.items()} | visibility.places
    if generation == 1:
        at = {name: where for name, where in at.items() if name not in {key.name for key in keys.SECOND}}
    stated_values = {name: value(name) for name in found} | {
        "input_embedding_scale": value("input_embedding_scale") or 1.0,
        "output_multiplier": value("output_multiplier") or 1.0,
        "layer_types": visibility.layer_types,
        "sliding_window": visibility.sliding_window,
        "causal": visibility.causal,
        "rope": rope,
    }
    survey = Survey(
        generation=generation,
        values=MappingProxyType(_relied_on(stated_values, places.doubts)),
        doubts=MappingProxyType(places.doubts),
        config=None,
        findings=findings,
        places=MappingProxyType(at),
        remarks=tuple(remarks),
        unknown=tuple(place for place in places.unread() if place not in keys.NEUTRAL),
        weight_file=weight_file,
    )
    return survey if findings else replace(survey, config=_whole(survey, vendor))


_MAY_BE_NONE = ("sliding_window", "num_target_layers", "final_logit_softcapping", "max_position_embeddings")
"""Fields for which having no value is one."""


def _relied_on(values: dict[str, Any], doubts: Mapping[str, str]) -> dict[str, Any]:
    in_doubt = {*doubts, *(("rope",) if doubts.keys() & {"rope_theta", "rope_scaling"} else ())}
    in_doubt |= {"causal"} if "is_causal" in doubts else set()
    return {
        name: value
        for name, value in values.items()
        if name not in in_doubt and (value is not None or name in _MAY_BE_NONE)
    }


def _whole(survey: Survey, vendor: bool) -> DraftConfig:
    """The config of which nothing is refused."""
    of_second = {key.name for key in keys.SECOND}
    values = {name: value for name, value in survey.values.items() if name not in {*of_second, "rope_theta"}}
    second = Second(**{name: survey.values[name] for name in of_second}) if survey.generation == 2 else None
    assert survey.generation  # noqa: S101 - else it was refused
    return DraftConfig(
        generation=survey.generation,
        vendor=vendor,
        **values,
        second=second,
        weight_file=survey.weight_file,
        places=survey.places,
        remarks=survey.remarks,
        unknown=survey.unknown,
    )


def _generation(places: Places, vendor: bool, remarks: list[Remark]) -> Literal[1, 2] | None:
    named = places.raw("architectures")
    if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str) and named[0] in ARCHITECTURES:
        return ARCHITECTURES[named[0]]
    if named not in (None, []):
        places.doubt("architectures", "the draft's architecture is not a known one")
        listed = named if isinstance(named, list) else [named]
        known = all(isinstance(each, str) and each in ARCHITECTURES for each in listed)
        places.refuse(
            "architecture_unknown",
            "architectures",
            named,
            sorted(ARCHITECTURES),
            "A draft has one architecture, in a list of one; take config.json from the draft's repository."
            if known
            else "This is no DFlash draft of either generation; give the draft's package, not its target's.",
        )
        return None
    if vendor:
        second = any(places.stated(key) for key in keys.SECOND)
        remarks.append(
            Remark(
                "dflash.generation_from_keys",
                "architectures",
                f"The package does not name its architecture; its keys are those of generation {1 + second}.",
            )
        )
        return 2 if second else 1
    places.doubt("architectures", "the draft's architecture is not stated")
    places.refuse(
        "architecture_missing",
        "architectures",
        named,
        sorted(ARCHITECTURES),
        "The config does not say which generation the draft is of; take config.json from the draft's repository.",
    )
    return None


def _second(places: Places, key: keys.Key, generation: int | None) -> Stated | None:
    if generation == 2:
        return places.need(key)
    stated = places.read(key)
    if stated and generation == 1:
        places.refuse(
            "generation_contradicted",
            stated.places[0],
            stated.value,
            "absent",
            f"{key.name} belongs to DFlash2DraftModel and the config says DFlashDraftModel; one of them is wrong. "
            "Take config.json from the draft's repository.",
        )
    return None


def _evenly(depth: int | None, layers: int | None) -> str:
    """What the formula would give, said where the ids are missing."""
    if depth is None or layers is None or depth < 4:
        return ""
    return f"; here that would silently be {list(spread_evenly(depth, layers))}"
