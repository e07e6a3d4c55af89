"""Weights that stand in a container more than once: found by the prints of tiles, or of spans of plain values.

A print holds 128 codes of a tile or some 40 bits of plain values, so that of a million prints of weights none are
equal by chance. Print 0 is none: of rows without weights, which may be alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Repeated:
    """share: of a tensor's prints, those that stand elsewhere too. partner: the name of one tensor where."""

    share: float
    partner: str


def find_repeats(prints: Mapping[str, np.ndarray]) -> dict[str, Repeated]:
    """prints: tensor's name -> uint64 [n]. Only tensors of which some prints are repeated."""
    names = list(prints)
    values = np.concatenate([np.empty(0, np.uint64), *prints.values()])
    owners = np.repeat(np.arange(len(names)), [len(each) for each in prints.values()])
    values, owners = values[values != 0], owners[values != 0]
    ordered = np.sort(values)
    if not (ordered[1:] == ordered[:-1]).any():
        return {}
    order = np.argsort(values, kind="stable")
    ordered, owners = values[order], owners[order]
    same = ordered[1:] == ordered[:-1]
    twice = np.append(same, False) | np.append(False, same)
    # The owner of an equal print: the one before in the order, for the first of its kind the one behind.
    partners = np.where(np.append(False, same), np.roll(owners, 1), np.roll(owners, -1))
    counts = np.bincount(owners, minlength=len(names))
    found = {}
    for number in np.unique(owners[twice]).tolist():
        own = twice & (owners == number)
        others = partners[own]
        other = int(others[others != number][0]) if (others != number).any() else number
        found[names[number]] = Repeated(int(own.sum()) / int(counts[number]), names[other])
    return found
