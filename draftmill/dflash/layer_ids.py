"""Which target layers a draft reads, and whether the ids look shifted by one.

Convention here and in Hugging Face configs: id L is the output of 0-based target layer L. llama.cpp's GGUF key
`dflash.target_layers` and speculators store L+1, and every shape still fits (dflash.md sections 1.2, 1.3, 3.1, 5.1).
"""

from dataclasses import dataclass

from draftmill.dflash.config_places import Places
from draftmill.dflash.remark import Remark


@dataclass(frozen=True)
class KnownDraft:
    """Published ids. A None is not known and matches any."""

    name: str
    generation: int
    layers: int | None
    hidden_size: int | None
    mask_token_id: int | None
    num_target_layers: int | None
    ids: tuple[int, ...]


KNOWN = (
    KnownDraft("Qwen3-4B-DFlash-b16", 1, 5, 2560, 151669, 36, (1, 9, 17, 25, 33)),
    KnownDraft("Qwen3-8B-DFlash-b16", 1, 5, 4096, 151669, 36, (1, 9, 17, 25, 33)),
    KnownDraft("Qwen3.6-27B training recipe", 1, 5, 5120, 248070, 64, (1, 16, 31, 46, 61)),
    KnownDraft("Nemotron-3.5-Bolt-E4B-DFlash", 1, 5, 2560, 4, 42, (5, 11, 17, 23, 35)),
    KnownDraft("Qwen3.8-27B-DFlash2", 2, 5, 5120, 248070, 64, (5, 19, 33, 47, 61)),
    KnownDraft("Muse-Glimmer-30B-DFlash2", 2, 5, 6656, 201818, 52, (1, 13, 25, 37, 49)),
    KnownDraft("Qwen3.8-Flash-Next-DFlash2", 2, 6, 2560, None, None, (1, 7, 13, 20, 26, 33, 39, 46)),
    KnownDraft("Nemotron-3.5-Transcribe-30B-A4B-DFlash2", 2, 6, None, None, None, (1, 5, 19, 29, 41, 51)),
)

LAST_ROOM = 3
"""No published draft taps a layer above num_target_layers - 3."""


def spread_evenly(target_layers: int, taps: int) -> tuple[int, ...]:
    """What z-lab's older code takes when ids are missing (`build_target_layer_ids`): one tap a draft layer."""
    if taps == 1:
        return (target_layers // 2,)
    return tuple(round(1 + i * (target_layers - 4) / (taps - 1)) for i in range(taps))


def check_layer_ids(places: Places, place: str, ids: tuple[int, ...], target_layers: int | None) -> None:
    """Codes: dflash.layer_ids_range, dflash.layer_ids_repeated."""
    highest = None if target_layers is None else target_layers - 1
    if min(ids) < 0 or (highest is not None and max(ids) > highest):
        hint = ""
        if max(ids) == target_layers and min(ids) > 0:
            hint = "It looks as if L+1 was stored, as GGUF and speculators do: "
        elif min(ids) == -1 and (highest is None or max(ids) < highest):
            hint = "It looks as if one was taken off ids that were right: "
        places.refuse(
            "layer_ids_range",
            place,
            list(ids),
            f"from 0 to {'num_target_layers - 1' if highest is None else highest}",
            f"An id is no layer of the target. {hint or 'Here '}id L is the output of 0-based layer L. Take the ids "
            "from the draft's original config.json.",
        )
    if len(set(ids)) != len(ids):
        places.refuse(
            "layer_ids_repeated",
            place,
            list(ids),
            "each layer once",
            "A layer is tapped twice, which no draft is trained with; take the ids from its original config.json.",
        )


def remarks_on(
    ids: tuple[int, ...],
    *,
    place: str,
    generation: int,
    layers: int | None,
    hidden_size: int | None,
    mask_token_id: int | None,
    target_layers: int | None,
) -> list[Remark]:
    """Codes: dflash.layer_ids_shifted (evidence that the ids are off by one), layer_ids_known (as published),
    layer_ids_order, target_depth_unknown."""
    found = []
    if target_layers is None:
        found.append(
            Remark(
                "dflash.target_depth_unknown",
                place,
                "num_target_layers is not stated, so the ids cannot be held against the target's depth.",
            )
        )
    if list(ids) != sorted(ids):
        found.append(
            Remark(
                "dflash.layer_ids_order",
                place,
                f"The ids {list(ids)} do not ascend. Columns of fc follow this order; no published draft is like this.",
            )
        )
    stated = (generation, layers, hidden_size, mask_token_id, target_layers)
    alike = [draft for draft in KNOWN if _alike(draft, stated)]
    exact = [draft.name for draft in alike if draft.ids == ids]
    if exact:
        return [
            *found,
            Remark("dflash.layer_ids_known", place, f"The ids are those published for {' and '.join(exact)}."),
        ]
    above, below = _evidence(ids, alike, target_layers)
    if above:
        found.append(
            Remark(
                "dflash.layer_ids_shifted",
                place,
                f"The ids {list(ids)} look one too high: {'; '.join(above)}. GGUF and speculators store L+1, and id L "
                "here is the output of 0-based layer L: compare with the draft's original config.json.",
            )
        )
    elif below:
        found.append(
            Remark(
                "dflash.layer_ids_shifted",
                place,
                f"The ids {list(ids)} look one too low: {'; '.join(below)}. It looks as if one was taken off ids that "
                "counted outputs from 0 already: compare with the draft's original config.json.",
            )
        )
    return found


def _evidence(ids: tuple[int, ...], alike: list[KnownDraft], target_layers: int | None) -> tuple[list[str], list[str]]:
    """(that each id is one too high, that each is one too low)"""
    above, below = [], []
    for draft in alike:
        published = f"{draft.name} was published with {list(draft.ids)}"
        if tuple(each + 1 for each in draft.ids) == ids:
            above.append(f"{published}, each one less")
        if tuple(each - 1 for each in draft.ids) == ids:
            below.append(f"{published}, each one more")
    if target_layers is not None and not above and not below:
        even = spread_evenly(target_layers, len(ids)) if target_layers > len(ids) + 3 else ()
        if even and tuple(each + 1 for each in even) == ids:
            above.append(f"evenly spread ids would be {list(even)}, each one less")
        if even and tuple(each - 1 for each in even) == ids:
            below.append(f"evenly spread ids would be {list(even)}, each one more")
        if max(ids) > target_layers - LAST_ROOM:
            above.append(
                f"the highest is {max(ids)} of {target_layers} layers, and no published draft taps above "
                f"{target_layers - LAST_ROOM}"
            )
    return above, below


def _alike(draft: KnownDraft, stated: tuple[int | None, ...]) -> bool:
    known = (draft.generation, draft.layers, draft.hidden_size, draft.mask_token_id, draft.num_target_layers)
    return all(a is None or b is None or a == b for a, b in zip(known, stated, strict=True))
