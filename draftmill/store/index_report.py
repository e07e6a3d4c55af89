"""A measurement in short: what its report says, for the index."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from draftmill.store.index import Accepted, Measurement, Ratio, Span
from draftmill.store.interface import Store
from draftmill.store.reading import get


def measurement_at(store: Store, key: str) -> Measurement:
    """The measurement whose report.json has this key."""
    from draftmill.measurement.record import load

    return measurement_of(load(get(store, key)), key)


def measurement_of(record: Any, key: str) -> Measurement:
    """A record (Speed or Accepted) in short; its figures are computed from the samples. key: of its report.json."""
    from draftmill.measurement.acceptance_results import acceptance_result
    from draftmill.measurement.record import WITH_DRAFT
    from draftmill.measurement.record import Accepted as AcceptedRecord
    from draftmill.measurement.speed_results import pairs_of, speed_result

    found: dict[str, Any] = {}
    answers: list[Any]
    if isinstance(record, AcceptedRecord):
        result = acceptance_result(record)
        acceptance = [(None, result.figures), *result.by_kind.items()]
        answers = list(record.acceptance.answers) if record.acceptance else []
    else:
        speed = speed_result(record)
        answers = [draft.counters for _, draft in pairs_of(record) if draft.counters]
        acceptance = [(None, speed.acceptance), *((kind.kind, kind.acceptance) for kind in speed.kinds)]
        found = {"reason": speed.reason, "lossless": speed.lossless}
        if request := speed.request:
            interval = request.interval
            found["ratio"] = Ratio(
                value=request.ratio,
                low=interval.low,
                high=interval.high,
                level=request.rule.level,
                pairs=request.pairs,
            )
        result = speed  # type: ignore[assignment]
    spans = _spans(answers, {prompted.name: prompted.kind for prompted in record.prompts})
    ran = record.ran.get(WITH_DRAFT) or next(iter(record.ran.values()), None)
    return Measurement(
        report=key,
        what=record.what,
        run=record.run,
        started=record.started,
        device=record.setup.device,
        engine_device=record.regime.device,
        build=ran.build if ran else record.regime.build,
        regime=record.regime.digest,
        draft=record.draft.sha256,
        target=record.target.sha256,
        target_name=record.target.name,
        n_max=record.regime.n_max,
        n_min=record.regime.n_min,
        p_min=record.regime.p_min,
        word=result.word,
        sentence=result.sentence,
        acceptance=tuple(
            Accepted(
                kind=kind,
                accepted=figures.accepted,
                offered=figures.offered,
                rounds=figures.rounds,
                span=spans.get(kind),
            )
            for kind, figures in acceptance
            if figures
        ),
        **found,
    )


def _spans(answers: list[Any], kind_of: Mapping[str, str]) -> dict[str | None, Span]:
    """The interval of accepted / offered for each kind of prompt, and for all (None), where the prompts suffice."""
    from draftmill.measurement.acceptance_interval import LEVEL, acceptance_interval

    groups: dict[str | None, list[Any]] = defaultdict(list)
    for answer in answers:
        groups[None].append(answer)
        groups[kind_of[answer.prompt]].append(answer)
    found: dict[str | None, Span] = {}
    for kind, group in groups.items():
        counts = [(answer.prompt, answer.accepted, answer.offered) for answer in group]
        if interval := acceptance_interval(counts):
            prompts = len({answer.prompt for answer in group})
            found[kind] = Span(low=interval.low, high=interval.high, level=LEVEL, prompts=prompts)
    return found
