"""The list of refusals that an inspection builds up, so that a person sees all of them at once."""

from collections import Counter
from typing import Any

from draftmill.outcome import Refusal, Refused

MOST_OF_A_KIND = 50
"""Findings kept for one code; a hostile header can hold a million, and a result has to stay readable."""


class Findings:
    """Collects refusals; of each code the first `MOST_OF_A_KIND` are kept and the rest counted."""

    def __init__(self) -> None:
        self._kept: list[Refusal] = []
        self._seen: Counter[str] = Counter()

    def add(self, code: str, where: str, measured: Any, expected: Any, sentence: str) -> None:
        self.extend([Refusal(code, where, measured, expected, sentence)])

    def extend(self, refusals: "Findings | list[Refusal] | tuple[Refusal, ...]") -> None:
        for refusal in refusals.refusals if isinstance(refusals, Findings) else refusals:
            self._seen[refusal.code] += 1
            if self._seen[refusal.code] <= MOST_OF_A_KIND:
                self._kept.append(refusal)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        more = [
            Refusal(code, "", seen, MOST_OF_A_KIND, f"{seen - MOST_OF_A_KIND} more of this kind are not listed.")
            for code, seen in self._seen.items()
            if seen > MOST_OF_A_KIND
        ]
        return (*self._kept, *more)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def raise_if_any(self) -> None:
        """Raises Refused with every finding."""
        if self._kept:
            raise Refused(*self.refusals)
