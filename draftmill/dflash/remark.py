"""What a reader of a report should know although nothing is refused for it."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Remark:
    """code: stable, dotted; where: key or tensor; sentence: for a person."""

    code: str
    where: str
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
