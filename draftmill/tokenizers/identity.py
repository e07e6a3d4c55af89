"""Are two tokenizers the same? Compared facet by facet, with the first place where they part.

No peer compares more than vocab_size for a borrowed tokenizer; equal sizes are neither necessary (padding) nor
sufficient (Qwen2.5 and Qwen3 both say 151936).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from draftmill.digest import canonical_json
from draftmill.tokenizers.vocabulary import Vocabulary

_MISSING = object()
_LISTS_BY_ID = ("texts", "added", "added_flags", "token_types", "scores")


class Level(StrEnum):
    """How far the identity holds, strict to loose."""

    FILE = "file"
    """The same tokenizer.json, byte for byte, and nothing beside it differs."""
    WHOLE = "whole"
    """Every facet is stated by both and equal."""
    STATED = "stated"
    """What both state is equal; some facets only one states (a GGUF has no normalizer)."""
    TEXTS = "texts"
    """Every id has the same text, but something else differs."""
    NONE = "none"


@dataclass(frozen=True)
class Difference:
    """The first place where a facet differs; None stands for "has nothing there"."""

    facet: str
    where: str
    left: Any
    right: Any

    def __str__(self) -> str:
        return f"{self.facet} at {self.where}: {_short(self.left)} against {_short(self.right)}"


@dataclass(frozen=True)
class Comparison:
    """level: what passed; equal and not_comparable: facet names; differences: one a facet, the texts' first."""

    level: Level
    equal: tuple[str, ...]
    differences: tuple[Difference, ...]
    not_comparable: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "level": str(self.level),
            "equal": list(self.equal),
            "differences": [str(difference) for difference in self.differences],
            "not_comparable": list(self.not_comparable),
        }


def compare(left: Vocabulary, right: Vocabulary) -> Comparison:
    """Compares two vocabularies over their non-padding ids; sizes with padding do not count."""
    equal, differences, unstated = [], [], []
    for facet in dict.fromkeys([*left.facets, *right.facets]):
        if facet not in left.facets or facet not in right.facets:
            unstated.append(facet)
        elif left.digests[facet] == right.digests[facet]:
            equal.append(facet)
        else:
            differences.append(first_difference(facet, left.facets[facet], right.facets[facet]))
    if differences:
        level = Level.TEXTS if "texts" in equal else Level.NONE
    elif unstated:
        level = Level.STATED
    elif left.file_sha256 and left.file_sha256 == right.file_sha256:
        level = Level.FILE
    else:
        level = Level.WHOLE
    return Comparison(level, tuple(equal), tuple(differences), tuple(unstated))


def first_difference(facet: str, left: Any, right: Any) -> Difference:
    """Where two values of a facet part that are not equal."""
    if facet in _LISTS_BY_ID:
        mine, yours = _by_id(left), _by_id(right)
        token = next(t for t in sorted({*mine, *yours}) if mine.get(t) != yours.get(t))
        return Difference(facet, f"id {token}", mine.get(token), yours.get(token))
    where, mine, yours = _part(left, right, "")
    return Difference(facet, where or "the whole", mine, yours)


def _by_id(rows: list[list[Any]]) -> dict[int, Any]:
    return {row[0]: row[1] if len(row) == 2 else row[1:] for row in rows}


def _part(left: Any, right: Any, where: str) -> tuple[str, Any, Any]:
    """The first place below `where` at which two unequal JSON values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = [(f"{where}.{k}", left.get(k, _MISSING), right.get(k, _MISSING)) for k in sorted({*left, *right})]
    elif isinstance(left, list) and isinstance(right, list):
        longest = max(len(left), len(right))
        pairs = [(f"{where}[{i}]", _at(left, i), _at(right, i)) for i in range(longest)]
    else:
        return where.lstrip("."), left, right
    place, mine, yours = next((place, a, b) for place, a, b in pairs if _unequal(a, b))
    if mine is _MISSING or yours is _MISSING:
        return place.lstrip("."), None if mine is _MISSING else mine, None if yours is _MISSING else yours
    return _part(mine, yours, place)


def _unequal(left: Any, right: Any) -> bool:
    # As the digests see it: to Python, true equals 1 and 1 equals 1.0.
    return left is _MISSING or right is _MISSING or canonical_json(left) != canonical_json(right)


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _MISSING


def _short(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def summarise(vocabulary: Vocabulary) -> Mapping[str, Any]:
    """What a proof says about a vocabulary: counts, roles and the digest of each facet."""
    return {
        "kind": vocabulary.kind,
        "tokens": len(vocabulary.texts),
        "highest_id": vocabulary.highest,
        "holes": vocabulary.highest + 1 - len(vocabulary.texts),
        "added": len(vocabulary.added),
        "ids": dict(vocabulary.ids),
        "add_bos": vocabulary.add_bos,
        "add_eos": vocabulary.add_eos,
        "digests": vocabulary.digests,
    }
