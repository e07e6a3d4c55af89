"""Which family a repository is of, by the catalogue's rules. What its metadata says beats its name, always."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from draftmill.catalogue.evidence import Evidence, text_of
from draftmill.catalogue.schema import Family, Sign
from draftmill.outcome import Refusal, Refused


@dataclass(frozen=True)
class Classified:
    """family: its name; by: what decided; remarks: where the name or the catalogue was overruled."""

    family: str
    by: str
    remarks: tuple[str, ...] = ()


def classify(evidence: Evidence, families: Mapping[str, Family], expected: str | None = None) -> Classified:
    """expected: the family that the catalogue states.

    Raises Refused: catalogue.family_ambiguous (two rules fit), catalogue.family_unknown (none does).
    """
    fitting = {name: sign for name, family in families.items() if (sign := _fitting(evidence, family))}
    fitting = {name: sign for name, sign in fitting.items() if not sign.is_weak} or fitting
    named = [name for name, family in families.items() if family.names_it(evidence.repo)]
    if len(fitting) > 1:
        raise _refused(
            evidence,
            "ambiguous",
            sorted(fitting),
            "signs of one family",
            f"It shows the signs of {' and of '.join(sorted(fitting))}. Make the rules in the catalogue exclude each "
            "other.",
        )
    if not fitting:
        hint = f" Its name is one of {named[0]}'s, and a name alone decides nothing." if named else ""
        raise _refused(
            evidence,
            "unknown",
            _shown(evidence),
            sorted(families),
            f"Nothing in it is a sign of a family known here.{hint} A new family needs a rule in the catalogue and a "
            "route.",
        )
    family, sign = next(iter(fitting.items()))
    by = _by(sign)
    remarks = [f"the name says {name}, {by} says {family}: {by} counts" for name in named if name != family]
    if expected and expected != family:
        remarks.append(f"the catalogue says {expected}, {by} says {family}: {by} counts")
    return Classified(family, by, tuple(dict.fromkeys(remarks)))


def holds(sign: Sign, evidence: Evidence) -> bool:
    """Whether the repository shows all of it. The headers are read last, and only where the rest holds."""
    return (
        all(evidence.named(pattern) for pattern in sign.files)
        and not any(evidence.named(pattern) for pattern in sign.without)
        and (not sign.config or _config_holds(sign, evidence.config))
        and all(_tensor(evidence, pattern) for pattern in sign.tensors)
        and not any(_tensor(evidence, pattern) for pattern in sign.without_tensors)
    )


def _fitting(evidence: Evidence, family: Family) -> Sign | None:
    named = family.names_it(evidence.repo)
    return next((sign for sign in family.signs if (named or not sign.is_weak) and holds(sign, evidence)), None)


def _tensor(evidence: Evidence, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in evidence.tensors)


def _config_holds(sign: Sign, config: Mapping[str, Any] | None) -> bool:
    return config is not None and all(
        any(_says(config_value(config, place), wanted) for wanted in texts) for place, texts in sign.config.items()
    )


def config_value(config: Mapping[str, Any], place: str) -> Any:
    """The value at a dotted place, None where there is none; a key that holds the dots itself comes first."""
    if place in config:
        return config[place]
    head, dot, rest = place.partition(".")
    inner = config.get(head)
    return config_value(inner, rest) if dot and isinstance(inner, dict) else None


def _says(value: Any, wanted: str) -> bool:
    if wanted in ("(absent)", "(present)"):
        return (value is None) == (wanted == "(absent)")
    if wanted == "(integer)":
        return type(value) is int
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return text_of(value) == wanted


def _by(sign: Sign) -> str:
    if sign.tensors or sign.without_tensors:
        return "the weights' header"
    return "config.json" if sign.config else "the name, with the files,"


def _shown(evidence: Evidence) -> dict[str, Any]:
    config = evidence.config or {}
    keys = ("architectures", "model_type", "spd_type")
    return {"files": list(evidence.files[:20]), **{key: config[key] for key in keys if key in config}}


def _refused(evidence: Evidence, code: str, measured: Any, expected: Any, sentence: str) -> Refused:
    return Refused(Refusal(f"catalogue.family_{code}", evidence.repo, measured, expected, sentence))
