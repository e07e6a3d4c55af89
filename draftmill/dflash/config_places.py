"""Looks values up in a draft's config wherever they may stand, and holds two places against each other."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from draftmill.dflash.config_keys import SECTIONS, Key
from draftmill.intake.findings import Findings


@dataclass(frozen=True)
class Stated:
    """A value, and the dotted places that state it."""

    value: Any
    places: tuple[str, ...]


def shown(value: Any) -> Any:
    """A value as a refusal may carry it: a number, flag or null as it is, else a short text."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "a whole number beyond 64 bits"
    plain = value is None or isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    return value if plain else repr(value)[:200]


class Places:
    """The config, flattened one level deep: `dflash.block_size` is that key or the key of an object `dflash`.

    A null is a key that is not stated, as FastFlowLM and transformers read it. doubts: name of a key -> why its value
    cannot be relied on, as a clause ("head_dim is not stated").
    """

    def __init__(self, content: Mapping[str, Any], where: str, findings: Findings) -> None:
        self.where = where
        self.findings = findings
        self.doubts: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._read: set[str] = set()
        self._twice: set[str] = set()
        self._found: dict[str, Stated | None] = {}
        for name, value in content.items():
            if name not in SECTIONS:
                self._put(name, value)
            elif isinstance(value, dict):
                for inner, each in value.items():
                    self._put(f"{name}.{inner}", each)
            elif value is not None:
                self.refuse(
                    "section_not_object",
                    name,
                    value,
                    "an object of keys and values",
                    "The section cannot be read, so what it says is unknown; take config.json from the publisher.",
                )

    def _put(self, place: str, value: Any) -> None:
        if value is None:
            return
        if place in self._values and self._values[place] != value:
            self._twice.add(place)
            self.refuse(
                "conflict",
                place,
                value,
                shown(self._values[place]),
                f"{place} stands twice, as a key and inside an object, with two values; keep the right one.",
            )
        self._values.setdefault(place, value)

    def refuse(self, code: str, place: str, measured: Any, expected: Any, sentence: str) -> None:
        self.findings.add(f"dflash.{code}", f"{self.where}:{place}", shown(measured), expected, sentence)

    def doubt(self, name: str, why: str) -> None:
        """The first reason counts."""
        self.doubts.setdefault(name, why)

    def raw(self, place: str) -> Any:
        """What stands there, unread; None when nothing does."""
        self._read.add(place)
        return self._values.get(place)

    def all(self) -> Iterable[tuple[str, Any]]:
        return self._values.items()

    def read(self, key: Key) -> Stated | None:
        """The key's value, None when it is not stated or (with a finding) not readable.

        Codes: dflash.value_invalid, dflash.conflict.
        """
        if key.name not in self._found:
            self._found[key.name] = self._look_up(key)
        return self._found[key.name]

    def _look_up(self, key: Key) -> Stated | None:
        found: list[tuple[str, Any]] = []
        for place in key.places:
            raw = self.raw(place)
            if raw is None:
                continue
            value = key.kind.parse(raw)
            if value is None:
                self.doubt(key.name, f"{key.name} has an impossible value")
                self.refuse(
                    "value_invalid",
                    place,
                    raw,
                    key.kind.expected,
                    f"{key.name} cannot have this value; take config.json from the draft's publisher.",
                )
                return None
            found.append((place, value))
        if not found:
            return None
        if self._twice.intersection(key.places):
            self.doubt(key.name, f"{key.name} has two values")
        (first, value), *others = found
        for place, other in others:
            if other != value:
                self.doubt(key.name, f"{key.name} has two values")
                self.refuse(
                    "conflict",
                    place,
                    other,
                    shown(value),
                    f"{place} says {shown(other)} and {first} says {shown(value)}; tools differ in which they read. "
                    "Remove the wrong one.",
                )
        return Stated(value, tuple(place for place, _ in found))

    def stated(self, key: Key) -> bool:
        """Whether any place has it, readable or not."""
        return any(place in self._values for place in key.places)

    def need(self, key: Key, also: str = "") -> Stated | None:
        """As `read`, with a finding when it is not stated. Code: dflash.key_missing."""
        stated = self.read(key)
        if stated is None and not self.stated(key):
            self.doubt(key.name, f"{key.name} is not stated")
            assumed = f" (when it is absent {key.assumed}{also})" if key.assumed else ""
            self.refuse(
                "key_missing",
                key.name,
                None,
                key.kind.expected,
                f"{key.name} is not stated and no default is invented for it{assumed}. "
                "Take the config of the draft's own repository, or ask its publisher.",
            )
        return stated

    def unread(self) -> tuple[str, ...]:
        """Places that nothing has looked at, in order."""
        return tuple(place for place in self._values if place not in self._read)
