"""Which targets a draft pairs with: by what the two vocabularies say, and never by their names.

A pair that the vocabularies allow but the draft was not trained for is an off-pair: it may be run, and says so.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from draftmill.tokenizers.pairing import Verdict, pair
from draftmill.tokenizers.vocabulary import Vocabulary


@dataclass(frozen=True)
class Pair:
    """off_pair: the target is none of those that the draft was trained for, None where those are not known.
    refusals, remarks: as `draftmill.tokenizers.pairing` gives them."""

    target: str
    verdict: Verdict
    off_pair: bool | None
    refusals: tuple[dict[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "verdict": self.verdict,
            "off_pair": self.off_pair,
            "refusals": list(self.refusals),
            "remarks": list(self.remarks),
        }


def derive_pairs(draft: Vocabulary, targets: Mapping[str, Vocabulary], trained_for: Collection[str]) -> list[Pair]:
    """Every target held against the draft; both vocabularies with the rows that their models have."""
    found = []
    for name, target in targets.items():
        judged = pair(target, draft)
        off_pair = name not in trained_for if trained_for else None
        refusals = tuple(refusal.as_json() for refusal in judged.refusals)
        found.append(Pair(name, judged.verdict, off_pair, refusals, judged.remarks))
    return found
