"""How numbers are written in every report: as many digits as are meant, the unit, and undefined where it is."""

from draftmill.measurement.statistics import Interval

UNDEFINED = "undefined"


def number(value: float | None, digits: int = 3) -> str:
    return UNDEFINED if value is None else f"{value:.{digits}f}"


def significant(value: float, digits: int = 3) -> str:
    """Without an exponent where the value lies between 0.0001 and a million."""
    return f"{value:.{digits}g}" if value < 10**digits else f"{value:,.0f}"


def share(value: float | None) -> str:
    return UNDEFINED if value is None else f"{100 * value:.1f} %"


def times(value: float) -> str:
    return f"{value:.3f}x"


def interval(value: Interval) -> str:
    return f"[{value.low:.3f}, {value.high:.3f}]"


def size(value: int) -> str:
    """Bytes in binary units, and exactly."""
    amount, unit = float(abs(value)), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    exact = f"{value:,} bytes"
    return exact if unit == "B" else f"{'-' if value < 0 else ''}{amount:.1f} {unit} ({exact})"


def counts(value: tuple[int, int] | None) -> str:
    return "" if value is None else f"{value[0]}/{value[1]}"


def said(value: object) -> str:
    """A setting: None "does not apply", yes and no for switches."""
    if value is None:
        return "does not apply"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
