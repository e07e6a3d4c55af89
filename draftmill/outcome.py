"""How work can end: the refusal of an input, and the failures that are not the input's fault.

Exit codes follow sysexits.h. A refusal is final and never retried; only `Temporary` is.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Refusal:
    """One reason why an input is not acceptable.

    code: stable, dotted lower case ("intake.shard_missing"); where: file, tensor, key or option;
    measured / expected: JSON values; sentence: what is wrong and what to do, for a person.
    """

    code: str
    where: str
    measured: Any
    expected: Any
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.code} at {self.where}: {self.sentence} ({values(self.measured, self.expected)})"


def values(measured: Any, expected: Any) -> str:
    """Both as the JSON of a report has them."""
    one, other = (json.dumps(value, ensure_ascii=False, default=repr) for value in (measured, expected))
    return f"measured {one}, expected {other}"


class MillError(Exception):
    """Base of what the mill raises on purpose. `code` is stable; str() is a sentence that says what to do."""

    exit_code: ClassVar[int] = 70

    def __init__(self, sentence: str, *, code: str = "", where: str = "") -> None:
        super().__init__(sentence)
        self.code = code or type(self).__name__.lower()
        self.where = where


class Refused(MillError):
    """The input is not acceptable. Carries every finding, not only the first."""

    exit_code = 65

    def __init__(self, *refusals: Refusal) -> None:
        if not refusals:
            raise ValueError("a refusal needs a reason")
        super().__init__("; ".join(str(r) for r in refusals), code=refusals[0].code, where=refusals[0].where)
        self.refusals = refusals


class Unavailable(MillError):
    """A service cannot be reached, or answers in a way we cannot use."""

    exit_code = 69


class InputOutput(MillError):
    """Reading or writing failed: no space, no permission, a broken disk."""

    exit_code = 74


class Temporary(MillError):
    """May work when tried again: rate limits, server errors, timeouts."""

    exit_code = 75


class NotPermitted(MillError):
    """A gated repository, or credentials that do not suffice."""

    exit_code = 77


class BadConfiguration(MillError):
    """A setting, option or missing tool that the operator has to mend."""

    exit_code = 78
