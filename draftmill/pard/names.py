"""What the name of a PARD repository says, and what it is worth beside the metadata.

A **PARD** name carries the draft's size (amd/PARD-Qwen3-0.6B is a 0.6B draft), a **PARD2** name the target's
(amd/PARD2-Qwen3-8B is a 0.6B draft for Qwen3-8B). Metadata beats the name, always.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from draftmill.pard.config import Generation, Pard

_NAME = re.compile(r"(?P<mark>PARD-?2|PARD)-(?P<model>.+)-(?P<size>\d+(?:\.\d+)?[BM])(?:-.+)?", re.IGNORECASE)


@dataclass(frozen=True)
class PardName:
    """model: the model family in the name; size: as written ("0.6B"); size_of: whose size that is."""

    generation: Generation
    model: str
    size: str
    size_of: Literal["draft", "target"]

    @property
    def target(self) -> str | None:
        """The target that a PARD2 name names."""
        return f"{self.model}-{self.size}" if self.size_of == "target" else None


def read_name(repository: str) -> PardName | None:
    """What `owner/name` says by the vendor's naming, or None when it does not follow it."""
    match = _NAME.fullmatch(repository.rsplit("/", 1)[-1])
    if not match:
        return None
    second = match["mark"].upper() != "PARD"
    return PardName("PARD-2" if second else "PARD", match["model"], match["size"], "target" if second else "draft")


@dataclass(frozen=True)
class Described:
    """The drafter after name and metadata were put together; remarks tell where the name was overruled."""

    generation: Generation
    draft_size: str | None
    target: str | None
    remarks: tuple[str, ...]


def describe(repository: str, pard: Pard, base_models: Iterable[str] = ()) -> Described:
    """Name and metadata together. `base_models`: the card's; the last size in one is the draft's own."""
    name = read_name(repository)
    remarks = []
    draft_size = next((size for model in base_models if (size := _size(model))), None)
    target = None
    if name and name.generation != pard.generation:
        remarks.append(f"the name says {name.generation}, config.json says {pard.generation}: config.json counts")
    elif name and name.size_of == "target":
        target = name.target
    elif name:
        if draft_size and draft_size != name.size:
            remarks.append(
                f"the name says a {name.size} draft, its base model says {draft_size}: the base model counts"
            )
        draft_size = draft_size or name.size
    return Described(pard.generation, draft_size, target, tuple(remarks))


def _size(model: str) -> str | None:
    sizes = re.findall(r"(?<![\w.])(\d+(?:\.\d+)?[BM])(?![a-z\d])", model, re.IGNORECASE)
    return sizes[-1] if sizes else None
