"""One request as a sample: what came, how long it took, what the server's processor did, what its counters say."""

from pydantic import ValidationError

from draftmill.measurement.record import WITH_DRAFT, Arm, Sample
from draftmill.measurement.servers.answers import Completion, Metrics
from draftmill.measurement.servers.did_speculate import Speculation, did_speculate
from draftmill.measurement.servers.server import Server
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Unavailable
from draftmill.speculation.trace import Counters, Stop

_STOPS: dict[str, Stop] = {"limit": "budget", "eos": "eos", "word": "eos"}


class Sampler:
    """Takes the samples of one arm from one server, `budget` new tokens each.

    speculation: of the newest sample with a draft; of the first one, together with the server's log.
    """

    def __init__(self, server: Server, arm: Arm, *, budget: int, seed: int) -> None:
        self._server = server
        self._arm = arm
        self._budget = budget
        self._seed = seed
        self._metrics = server.client.metrics() if arm == WITH_DRAFT else None
        self.speculation = Speculation(True)
        self._log = server.log

    def take(self, prompt: Encoded, *, pair: int | None, second: bool) -> Sample:
        """Raises ServerError, and Unavailable where the answer or the counters contradict themselves."""
        server, drafts = self._server, self._arm == WITH_DRAFT
        slots = server.client.slots() if drafts else []
        waited, cpu = server.waited_seconds(), server.cpu_seconds()
        completion = server.client.completion(prompt.tokens, self._budget, seed=self._seed)
        cpu_s, after = server.cpu_seconds() - cpu, server.waited_seconds()
        counters = None
        if drafts:
            self.speculation = _judged(did_speculate(slots, completion, self._log), completion)
            # The draft is set up before the first request: what the log tells of it is told by then.
            self._log = ""
            before, self._metrics = self._metrics, server.client.metrics()
            counters = _counters(completion, prompt, self._budget, before, self._metrics)
        return Sample(
            arm=self._arm,
            pair=pair,
            second=second,
            prompt=prompt.name,
            tokens=completion.tokens,
            stop=stop_of(completion, self._budget),
            wall_s=completion.wall_s,
            prompt_ms=completion.timings.prompt_ms,
            predicted_ms=completion.timings.predicted_ms,
            cpu_s=cpu_s,
            # A thread that ended took its count with it.
            waited_s=None if waited is None or after is None else max(after - waited, 0.0),
            counters=counters,
        )


def stop_of(completion: Completion, budget: int) -> Stop:
    """Raises Unavailable for a stop that llama-server does not have."""
    stop = _STOPS.get(completion.stop_type)
    if stop is None:
        raise Unavailable(
            f"the server stopped for {completion.stop_type!r}, which is neither limit, eos nor word.",
            code="measurement.stop",
        )
    return "length" if stop == "budget" and len(completion.tokens) < budget else stop


def _judged(speculation: Speculation, completion: Completion) -> Speculation:
    """An answer of one token leaves no room for a draft: it came out of the prompt's own pass."""
    no_room = speculation.cause == "nothing_drafted" and len(completion.tokens) <= 1
    return Speculation(True) if no_room else speculation


def _counters(
    completion: Completion, prompt: Encoded, budget: int, before: Metrics | None, after: Metrics
) -> Counters | None:
    """The sample's totals; None where the engine does not count its rounds.

    Passes after the prompt's own: each gives one token beside the accepted ones, so emitted - 1 - accepted; where the
    end of text fell inside an accepted prefix some accepted tokens were not emitted, and the counted rounds say more.
    """
    if before is None or before.drafts is None or after.drafts is None:
        return None
    timings = completion.timings
    offered, accepted = timings.draft_n or 0, timings.draft_n_accepted or 0
    drafted = round(after.drafts - before.drafts)
    passes = max(len(completion.tokens) - 1 - accepted, drafted)
    try:
        _agree("offered drafts", offered, before.drafted_tokens, after.drafted_tokens)
        _agree("accepted drafts", accepted, before.accepted_tokens, after.accepted_tokens)
        return Counters(
            prompt=prompt.name,
            budget=budget,
            emitted=len(completion.tokens),
            stop=stop_of(completion, budget),
            first_token=True,
            offered=offered,
            accepted=accepted,
            passes=passes,
            undrafted=passes - drafted,
            by_position=_positions(before, after),
        )
    except (ValidationError, ValueError) as error:
        faults = error.errors() if isinstance(error, ValidationError) else [{"msg": str(error)}]
        raise Unavailable(
            f"the server's counters contradict its answer to {prompt.name} ({faults[0]['msg']}): "
            "something else uses this server, or its build counts otherwise; name another build.",
            code="measurement.counters",
            where=prompt.name,
        ) from error


def _agree(what: str, told: int, before: float | None, after: float | None) -> None:
    if before is not None and after is not None and round(after - before) != told:
        raise ValueError(f"{told} {what} by its timings, {after - before:g} by its metrics")


def _positions(before: Metrics, after: Metrics) -> tuple[int, ...] | None:
    if not after.accepted_per_position:
        return None
    earlier = before.accepted_per_position or (0.0,) * len(after.accepted_per_position)
    return tuple(round(late - early) for early, late in zip(earlier, after.accepted_per_position, strict=True))
