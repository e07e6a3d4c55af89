"""Which file of a package holds the weights: what its config names, kept inside the package, or the one container.

The vendor's key for it is not established (q4nx.md section 13, item 8), so any text in the config that names a weight
file counts. `vision_model_weight` and `audio_model_weight` are towers' files (section 5.2).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from draftmill.dflash.config_keys import NEUTRAL
from draftmill.dflash.config_places import Places
from draftmill.hub.local import belongs
from draftmill.hub.paths import path_problem
from draftmill.outcome import Refusal, Refused

DEFAULT = "model.q4nx"
SUFFIX = ".q4nx"
_NAMES_WEIGHTS = re.compile(r"weight|container", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+:/|www\.|//[^/]", re.IGNORECASE)
_TOWER = re.compile(r"vision|audio", re.IGNORECASE)
_WEIGHT_SUFFIX = (SUFFIX, ".safetensors", ".gguf", ".bin")


def stated_weight_file(places: Places) -> str | None:
    """The container that the config names, None when it names none.

    Codes: dflash.weight_path (leaves the package, or is no plain path), dflash.conflict.
    """
    found: tuple[str, str] | None = None
    for place, value in [(place, text) for place, node in places.all() for text in _texts(node)]:
        if place in NEUTRAL:
            continue
        if not value.lower().endswith(_WEIGHT_SUFFIX) and not _NAMES_WEIGHTS.search(place.rpartition(".")[2]):
            continue
        if _TOWER.search(place) or value.lower().endswith(SUFFIX):
            places.raw(place)  # any other file is nothing that is read here, and remarked on as such
        if _ADDRESS.match(value):
            places.refuse(
                "weight_path",
                place,
                value,
                "a plain path inside the package",
                "The weight file is named by an address on a network, and nothing is fetched from there. Put the file "
                "into the package and name it there.",
            )
        elif problem := path_problem(value) if value.strip() else "is empty":
            places.refuse(
                "weight_path",
                place,
                value,
                "a plain path inside the package",
                f"The weight file's path {problem}; nothing outside the package is read. Put the file into the package "
                "and name it there.",
            )
        elif _TOWER.search(place) or not value.lower().endswith(SUFFIX):
            continue
        elif found and found[1] != value:
            places.refuse(
                "conflict",
                place,
                value,
                found[1],
                f"{place} and {found[0]} name two containers; keep the one that the draft is in.",
            )
        else:
            found = (place, value)
    return found[1] if found else None


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, however deep (the reader bounds the depth)."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def find_container(folder: Path, stated: str | None) -> Path:
    """The package's container: the stated one, else model.q4nx, else the only *.q4nx beside the config.

    Raises OSError, and Refused: dflash.container_missing, dflash.container_ambiguous, dflash.container_link (links in a
    loop), dflash.weight_path (a link out of the folder).
    """
    if stated is not None:
        path = folder / PurePosixPath(stated)
        if not path.exists():
            raise Refused(_missing(stated, names(folder)))
    elif (folder / DEFAULT).exists():
        path = folder / DEFAULT
    else:
        there = [name for name in names(folder) if not _TOWER.search(name)]
        if not there:
            raise Refused(_missing(DEFAULT, there))
        if len(there) > 1:
            raise Refused(
                Refusal(
                    "dflash.container_ambiguous",
                    folder.name,
                    there,
                    f"{DEFAULT}, or one *{SUFFIX}",
                    f"Several containers lie here and the config names none; keep one, or call it {DEFAULT}.",
                )
            )
        path = folder / there[0]
    try:
        real = path.resolve()
    except RuntimeError:
        sentence = "The container is a link that leads back to itself; put the file itself there."
        raise Refused(Refusal("dflash.container_link", path.name, "a loop of links", "a file", sentence)) from None
    if not belongs(real, folder):
        raise Refused(
            Refusal(
                "dflash.weight_path",
                path.name,
                str(real),
                "a file inside the package",
                "The container is a link out of the package; nothing outside it is read. Copy the file itself into it.",
            )
        )
    return path


def names(folder: Path) -> list[str]:
    """Names of the containers in the folder."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name.lower().endswith(SUFFIX))


def _missing(name: str, there: Iterable[str]) -> Refusal:
    return Refusal(
        "dflash.container_missing",
        name,
        list(there),
        name,
        "The package's container is not there; download the package again, or put its container beside config.json.",
    )
