"""The rotary embedding of a draft: its base and scaling, as the config states them.

A draft rotates the whole head_dim by halves (NeoX), inverse frequencies theta^(-2j/d) (dflash.md section 3.3). What
leaks into draft configs from targets (a part rotated only, sections for images) is refused: speculators #1050.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from draftmill.dflash.config_keys import ROPE_THETA
from draftmill.dflash.config_places import Places

_SECTIONS = ("rope_parameters", "rope_scaling")
_NEEDS = {"default": (), "yarn": ("factor", "original_max_position_embeddings")}
_MAY = {
    "default": (),
    "yarn": ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}


@dataclass(frozen=True)
class Rope:
    """theta: the base. type: default or yarn. scaling: yarn's own keys as stated, numbers and flags."""

    theta: float
    type: str = "default"
    scaling: Mapping[str, float] = field(default_factory=dict)


def read_rope(places: Places) -> Rope | None:
    """None when something is refused. Codes: dflash.rope_type_unknown, rope_key_missing, rope_key_invalid,
    rope_key_unknown, rope_per_layer_type, conflict, and those of `Places.need` for rope_theta."""
    theta = places.need(ROPE_THETA)
    kind, found, invalid = _type(places), dict[str, tuple[str, float]](), set[str]()
    for section in _SECTIONS:
        for place, value in list(places.all()):
            name = place.removeprefix(f"{section}.")
            if not place.startswith(f"{section}.") or name in ("rope_theta", "rope_type", "type"):
                continue
            places.raw(place)
            if isinstance(value, dict):
                places.refuse(
                    "rope_per_layer_type",
                    place,
                    value,
                    "one set of rotary parameters",
                    "Rotary parameters per kind of layer are not known of any draft; ask the publisher for the "
                    "config this draft was trained with.",
                )
            elif name in ("partial_rotary_factor", "mrope_section", "mrope_interleaved"):
                pass  # looked at by `unsupported`, wherever they stand
            elif kind is not None and name not in _NEEDS[kind] + _MAY[kind]:
                places.refuse(
                    "rope_key_unknown",
                    place,
                    value,
                    sorted(_NEEDS[kind] + _MAY[kind]),
                    f"Rotary scaling of type {kind} has no such key, and it may change every position; "
                    "take config.json from the draft's publisher.",
                )
            elif type(value) not in (int, float, bool) or not _finite(value):
                invalid.add(name)
                places.refuse(
                    "rope_key_invalid",
                    place,
                    value,
                    "a finite number or a flag",
                    "The rotary scaling cannot be computed with this; take config.json from the draft's publisher.",
                )
            elif name in found and found[name][1] != value:
                places.doubt("rope_scaling", f"rope_scaling's {name} has two values")
                places.refuse(
                    "conflict",
                    place,
                    value,
                    found[name][1],
                    f"{place} says {value} and {found[name][0]} says {found[name][1]}; remove the wrong one.",
                )
            else:
                found[name] = (place, value)
    scaling = {name: value for name, (_, value) in found.items()}
    for name in _NEEDS.get(kind or "", ()):
        if name not in invalid and (isinstance(scaling.get(name), bool) or scaling.get(name, 0) <= 0):
            places.refuse(
                "rope_key_missing" if name not in scaling else "rope_key_invalid",
                f"rope_scaling.{name}",
                scaling.get(name),
                "a number above 0",
                f"Rotary scaling of type {kind} needs {name}; tools fill it in differently. Complete the config from "
                "the draft's own repository.",
            )
    return Rope(theta.value, kind, scaling) if theta and kind else None


def _type(places: Places) -> str | None:
    stated: list[tuple[str, object]] = []
    for section in _SECTIONS:
        for name in ("rope_type", "type"):
            if (value := places.raw(f"{section}.{name}")) is not None:
                stated.append((f"{section}.{name}", value))
    if not stated:
        return "default"
    (first, kind), *others = stated
    if differing := [(place, other) for place, other in others if other != kind]:
        place, other = differing[0]
        places.doubt("rope_scaling", "the rotary type has two values")
        places.refuse(
            "conflict", place, other, repr(kind)[:80], f"{place} and {first} name two rotary types; keep the right one."
        )
        return None
    if not isinstance(kind, str) or kind not in _NEEDS:
        places.refuse(
            "rope_type_unknown",
            first,
            kind,
            sorted(_NEEDS),
            "No published draft has this rotary type, and no forward of a draft with it is defined; "
            "take config.json from the draft's publisher.",
        )
        return None
    return kind


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
