"""What a drafter comes from (weights, tokenizer, training), as far back as somebody says, with each one's licence."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from draftmill.licences.lines import known_line
from draftmill.outcome import Refusal, Refused

LARGEST = 32
Relation = Literal["base", "target", "donor", "upstream"]


class Ancestor(BaseModel):
    """relation: of the first one on the way to it: what the weights were made from, what it was trained for, whose
    tokenizer it has, what a package was made of. said_by: who says so. licence: the hub's id; known_from: where that is
    from. Both are None where nobody says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    relation: Relation
    said_by: str
    licence: str | None = None
    known_from: str | None = None


@dataclass(frozen=True)
class Start:
    """A parent as the source's own card, or the catalogue, names it."""

    name: str
    relation: Relation
    said_by: str


@dataclass(frozen=True)
class Card:
    """What a repository says of itself at a commit."""

    licence: str | None
    bases: tuple[str, ...]
    commit: str


Cards = Callable[[str], Card | None]
"""A repository's card by owner/name; None where there is none to be had."""


def no_cards(_repo: str) -> None:
    """For whoever asks nobody."""


def trace(starts: Iterable[Start], cards: Cards = no_cards, itself: str | None = None) -> tuple[Ancestor, ...]:
    """Every ancestor, the near ones first; each once. itself: the source's own name, which is none of its ancestors.

    A known line answers before a card. Raises Refused("lineage.too_long"), and what `cards` raises.
    """
    waiting = deque(starts)
    found: dict[str, Ancestor] = {}
    while waiting:
        start = waiting.popleft()
        if start.name in found or start.name == itself:
            continue
        if len(found) == LARGEST:
            sentence = "It has more ancestors than anybody can answer for; look whether its cards name each other."
            raise Refused(Refusal("lineage.too_long", itself or start.name, [*found], f"{LARGEST} at most", sentence))
        licence, known_from, bases = _look(start.name, cards)
        found[start.name] = Ancestor(**vars(start), licence=licence, known_from=known_from)
        said_by = known_from if known_line(start.name) else f"the card of {start.name}"
        waiting += [Start(base, start.relation, said_by or "") for base in bases]
    return tuple(found.values())


def _look(name: str, cards: Cards) -> tuple[str | None, str | None, tuple[str, ...]]:
    """(licence, where that is from, bases)"""
    if line := known_line(name):
        return line.licence, line.source, line.bases
    card = cards(name)
    if card is None:
        return None, None, ()
    return card.licence, f"its card at {card.commit[:12]}" if card.licence else None, card.bases
