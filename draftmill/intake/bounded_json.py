"""JSON from strangers: bounded in size and depth, without duplicate keys, NaN or Infinity."""

import json
import math
from pathlib import Path
from typing import Any

from draftmill.outcome import Refusal, Refused

DEEPEST = 64


class _DuplicateKey(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        raise _DuplicateKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        # Readable as infinity, and then nothing that repeats it is JSON any more.
        raise ValueError(f"{text[:40]} is larger than any 64-bit float")
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """The JSON object in `raw`.

    Raises Refused: intake.json_invalid, intake.json_duplicate_key, intake.json_too_deep (nesting over 64),
    intake.json_not_object.
    """
    try:
        value = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant, parse_float=_finite
        )
        if b"\\ud" in raw.lower():
            # A lone surrogate is a str that no file or result can hold: it has to end here.
            json.dumps(value, ensure_ascii=False).encode()
    except _DuplicateKey as error:
        raise Refused(
            Refusal(
                "intake.json_duplicate_key",
                where,
                str(error)[:200],
                "each key once",
                "A key stands twice in one object, and readers disagree which one counts; publish the file with one.",
            )
        ) from None
    except RecursionError:
        raise _too_deep(where) from None
    except ValueError as error:
        raise Refused(
            Refusal(
                "intake.json_invalid",
                where,
                str(error)[:200],
                "UTF-8 JSON (RFC 8259)",
                "The text is not valid JSON; fetch the file again, or mend it at its source.",
            )
        ) from None
    if not isinstance(value, dict):
        raise Refused(
            Refusal(
                "intake.json_not_object",
                where,
                type(value).__name__,
                "an object",
                "The text is JSON but not an object of keys and values; fetch the file again, or mend it.",
            )
        )
    if _deeper_than(value, DEEPEST):
        raise _too_deep(where)
    return value


def _too_deep(where: str) -> Refused:
    return Refused(
        Refusal(
            "intake.json_too_deep",
            where,
            f"more than {DEEPEST} levels",
            f"at most {DEEPEST} levels",
            "The nesting is deeper than any real file of this kind needs; do not trust this file.",
        )
    )


def read_object(path: Path, where: str, limit: int) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes.

    Raises what `parse_object` does, and Refused intake.json_too_large.
    """
    with path.open("rb") as file:
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise Refused(
            Refusal(
                "intake.json_too_large",
                where,
                path.stat().st_size,
                limit,
                f"A file of this kind may have {limit} bytes; fetch it again, or mend it.",
            )
        )
    return parse_object(raw, where)
