"""Two runs side by side, and what of them never compares."""

from draftmill.measurement.record import Measured, Speed
from draftmill.measurement.speed_results import speed_result
from draftmill.outcome import Refusal, Refused
from draftmill.speculation.regime import comparable

RATIO = "ratio"


def compare(one: Measured, other: Measured, by: str = RATIO) -> tuple[str, str]:
    """The verdicts of two speed runs of one regime, a sentence each.

    Raises Refused: measurement.tokens_per_second for any other `by` (the same target read 7.7 and 18.9 tok/s an hour
    apart: only a ratio inside a run is a measurement), measurement.not_speed, speculation.regime_differs (one a field).
    """
    if by != RATIO:
        raise Refused(
            Refusal(
                "measurement.tokens_per_second",
                "by",
                by,
                RATIO,
                "absolute speeds of two runs do not compare: compare the ratios, or put both arms into one run",
            )
        )
    if not isinstance(one, Speed) or not isinstance(other, Speed):
        found = ["speed" if isinstance(record, Speed) else "acceptance" for record in (one, other)]
        sentence = "give two reports of measure speed"
        raise Refused(Refusal("measurement.not_speed", "what", found, ["speed", "speed"], sentence))
    if findings := comparable(one.regime, other.regime):
        raise Refused(*findings)
    return speed_result(one).sentence, speed_result(other).sentence
