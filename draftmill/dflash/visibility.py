"""Which keys a block row may see, as far as the config decides it: kinds of layers, window, causality.

The one place where implementations differ (dflash.md section 3.4), so nothing is filled in where they do: a window of
layers that slide, the kinds of layers when a window is stated, causality of an upstream draft with sliding layers.
"""

from dataclasses import dataclass

from draftmill.dflash.config_keys import IS_CAUSAL, LAYER_TYPES_KEY, SLIDING_WINDOW, USE_SLIDING_WINDOW
from draftmill.dflash.config_kinds import FULL, SLIDING
from draftmill.dflash.config_places import Places, Stated
from draftmill.dflash.remark import Remark

DEFAULT, DERIVED, TOLD = "(default)", "(derived)", "(told)"
"""Places of values that no key states: a documented default, a consequence of other keys, the caller."""


@dataclass(frozen=True)
class Visibility:
    """sliding_window: positions, None when no layer slides. places: where each of the three was found.

    Where something is refused, what does not follow from the config is None and in doubt (`Places.doubts`).
    """

    layer_types: tuple[str, ...] | None
    sliding_window: int | None
    causal: bool | None
    places: dict[str, tuple[str, ...]]


def read_visibility(
    places: Places, layers: int | None, vendor: bool, told: bool | None, remarks: list[Remark]
) -> Visibility:
    """vendor: a FastFlowLM package. told: causality as the caller knows it.

    Codes: dflash.layer_types_missing, layer_types_length, window_contradicted, causality_not_stated,
    causality_contradicted, and those of `Places.need`.
    """
    stated = places.read(SLIDING_WINDOW)
    window = stated if stated and stated.value else None
    types = _layer_types(places, layers, vendor, window, remarks)
    slides = types is not None and SLIDING in types.value
    if slides and window is None and stated is None:
        places.need(SLIDING_WINDOW)
    elif slides and stated and window is None:
        places.doubt("sliding_window", "sliding_window is 0 and layers slide")
        places.refuse(
            "window_contradicted",
            stated.places[0],
            0,
            "a window of at least 1",
            "Layers slide, but over a window of nothing; take config.json from the draft's publisher.",
        )
    if types:
        _check_flag(places, slides)
    causal = _causal(places, slides, vendor, told, remarks)
    if types is None:
        places.doubt("sliding_window", "which layers slide is not known")
    used = window if slides else None
    return Visibility(
        types.value if types else None,
        used.value if used else None,
        causal.value if causal else None,
        {
            "layer_types": types.places if types else (),
            "sliding_window": used.places if used else (DERIVED,),
            "causal": causal.places if causal else (),
        },
    )


def _layer_types(
    places: Places, layers: int | None, vendor: bool, window: Stated | None, remarks: list[Remark]
) -> Stated | None:
    stated = places.read(LAYER_TYPES_KEY)
    if stated:
        if layers is not None and len(stated.value) != layers:
            places.doubt("layer_types", "layer_types is for another number of layers")
            places.refuse(
                "layer_types_length",
                stated.places[0],
                len(stated.value),
                layers,
                "layer_types has another length than num_hidden_layers; one of them is of another model.",
            )
            return None
        return stated
    if places.stated(LAYER_TYPES_KEY) or layers is None:
        return None
    if any(places.stated(key) and places.read(key) is None for key in (SLIDING_WINDOW, USE_SLIDING_WINDOW)):
        return None  # refused, and nothing follows from it
    flag = places.read(USE_SLIDING_WINDOW)
    on = flag.value if flag else None
    pattern = places.raw("sliding_window_pattern")
    if pattern is None and not on and (window is None or on is False):
        return Stated((FULL,) * layers, (DERIVED,))
    if pattern is None and vendor and window:
        remarks.append(
            Remark(
                "dflash.layer_types_from_window",
                "layer_types",
                f"The package states a window of {window.value} and no kinds of layers: every layer is taken to slide, "
                "as the container has one window for all.",
            )
        )
        return Stated((SLIDING,) * layers, (DERIVED,))
    places.doubt("layer_types", "layer_types is not stated")
    places.refuse(
        "layer_types_missing",
        "layer_types",
        None,
        LAYER_TYPES_KEY.kind.expected,
        "A window is in use and layer_types does not say where: transformers slides from max_window_layers on, others "
        "slide every layer, and either changes the drafts. Complete the config from the draft's own repository.",
    )
    return None


def _check_flag(places: Places, slides: bool) -> None:
    flag = places.read(USE_SLIDING_WINDOW)
    if flag and flag.value != slides:
        places.refuse(
            "window_contradicted",
            flag.places[0],
            flag.value,
            slides,
            f"{flag.places[0]} is {str(flag.value).lower()} while {'some' if slides else 'no'} layer is "
            f"{SLIDING}; tools follow one or the other. Correct the one that is wrong.",
        )


def _causal(places: Places, slides: bool, vendor: bool, told: bool | None, remarks: list[Remark]) -> Stated | None:
    stated = places.read(IS_CAUSAL)
    if stated:
        if told is not None and told != stated.value:
            places.refuse(
                "causality_contradicted",
                stated.places[0],
                stated.value,
                told,
                f"The config states {stated.places[0]} {str(stated.value).lower()}, and you asked for the opposite; "
                "leave --causal/--non-causal away, or correct the config.",
            )
            return None
        return stated
    if places.stated(IS_CAUSAL):
        return None
    if told is not None:
        return Stated(told, (TOLD,))
    if vendor:
        remarks.append(
            Remark(
                "dflash.causality_by_loader",
                "is_causal",
                "The package does not state causality; it is not causal, by FastFlowLM's published loader. z-lab's "
                "and vLLM's default for sliding layers would be causal.",
            )
        )
        return Stated(False, (DEFAULT,))
    if not slides:
        return Stated(False, (DEFAULT,))
    places.refuse(
        "causality_not_stated",
        "is_causal",
        None,
        IS_CAUSAL.kind.expected,
        "Layers slide and the config does not say whether they are causal inside the block: z-lab's newer code, vLLM "
        "and SGLang take causal, transformers and NeMo never do. Say --causal or --non-causal, as the draft was "
        "trained.",
    )
    return None
