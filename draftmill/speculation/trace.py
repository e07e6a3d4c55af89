"""The raw record of an acceptance measurement. Figures are computed from it each time and never stored as truth.

A round is one draft-verify step: `offered` drafts, of which the first `accepted` equalled the target's tokens; the
target's own next token (the bonus) follows. Produced are then accepted + 1 tokens a round, before the cut at the budget
or at the end of the text: the last round may hold tokens, accepted ones too, that were never emitted.
"""

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from draftmill.speculation.regime import Count, Name, Record, Regime, invalid

Natural = Annotated[int, Field(ge=0)]
Stop = Literal["budget", "eos", "length"]


class Round(Record):
    """offered may be 0: a gate held the drafter back, and the target decoded one token plainly."""

    offered: Natural
    accepted: Natural

    @model_validator(mode="after")
    def _is_possible(self) -> "Round":
        if self.accepted > self.offered:
            raise ValueError(f"{self.accepted} of {self.offered} offered drafts accepted")
        return self


class Answer(Record):
    """What both routes know of one answer.

    prompt: its name in the prompt set. budget: new tokens asked for. emitted: new tokens returned, the end-of-text
    token included where it was returned. stop: "budget" (emitted = budget), "eos" (end of text or a stop word),
    "length" (the context is full). first_token: the prompt's own pass gave the first emitted token, outside any round.
    """

    prompt: Name
    budget: Count
    emitted: Natural
    stop: Stop
    first_token: bool

    def _check_end(self, produced: int, last: int) -> None:
        """produced: tokens before the cut; last: those of the last round, the only ones that a cut can fall in.

        emitted may equal what came before the last round: published loops run one round more at an exact budget.
        """
        if not produced - last <= self.emitted <= produced:
            raise ValueError(f"{self.emitted} tokens emitted, but the rounds give {produced - last} to {produced}")
        if self.emitted > self.budget:
            raise ValueError(f"{self.emitted} tokens emitted of a budget of {self.budget}")
        if self.stop == "budget" and self.emitted != self.budget:
            raise ValueError(f"stopped by the budget of {self.budget} after {self.emitted} tokens")
        if self.stop == "length" and self.emitted == self.budget:
            raise ValueError("the budget is reached: the stop reason is budget, not length")


class Trace(Answer):
    """One answer with its per-round list: the token-exact route, and every loop of our own."""

    rounds: tuple[Round, ...]

    @model_validator(mode="after")
    def _is_possible(self) -> "Trace":
        self._check_end(self.produced, self.rounds[-1].accepted + 1 if self.rounds else 0)
        return self

    @property
    def offered(self) -> int:
        return sum(round.offered for round in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(round.accepted for round in self.rounds)

    @property
    def passes(self) -> int:
        """Rounds, those without a draft included."""
        return len(self.rounds)

    @property
    def undrafted(self) -> int:
        return sum(not round.offered for round in self.rounds)

    @property
    def produced(self) -> int:
        """Tokens before the cut."""
        return self.first_token + self.accepted + self.passes


class Counters(Answer):
    """One answer as totals: the counters route. No per-round list, so nothing that needs one can be said.

    offered, accepted: llama-server's `timings.draft_n` and `draft_n_accepted`. passes: target passes after the prompt,
    of which `undrafted` had no draft. by_position: how often draft 1, 2, ... of a round was accepted (the server's
    `spec_decode_num_accepted_tokens_per_pos_total`), None where the engine does not say.
    """

    offered: Natural
    accepted: Natural
    passes: Natural
    undrafted: Natural
    by_position: tuple[Natural, ...] | None

    @model_validator(mode="after")
    def _is_possible(self) -> "Counters":
        drafted = self.passes - self.undrafted
        if self.accepted > self.offered:
            raise ValueError(f"{self.accepted} of {self.offered} offered drafts accepted")
        if drafted < 0:
            raise ValueError(f"{self.undrafted} of {self.passes} rounds without a draft")
        if self.offered < drafted or (self.offered and not drafted):
            raise ValueError(f"{self.offered} drafts offered in {drafted} rounds with a draft")
        if self.by_position is not None:
            if sum(self.by_position) != self.accepted:
                raise ValueError(f"accepted by position sum to {sum(self.by_position)}, not {self.accepted}")
            steps = (drafted, *self.by_position)
            if any(later > earlier for earlier, later in pairwise(steps)):
                raise ValueError(f"a later position accepted more often than an earlier one: {list(steps)}")
        # The last round's share is not known: it holds every accepted draft at most.
        self._check_end(self.produced, min(self.passes, 1) * (self.accepted + 1))
        return self

    @property
    def produced(self) -> int:
        """Tokens before the cut."""
        return self.first_token + self.accepted + self.passes


class Acceptance(Record):
    """The answers of one regime: traces (token-exact) or counters, never both."""

    regime: Regime
    answers: tuple[Trace, ...] | tuple[Counters, ...]

    @model_validator(mode="after")
    def _is_of_one_regime(self) -> "Acceptance":
        if not self.answers:
            raise ValueError("no answer")
        kind = Trace if self.regime.route == "token-exact" else Counters
        for answer in self.answers:
            if not isinstance(answer, kind):
                raise ValueError(f"{answer.prompt}: a {type(answer).__name__} on the {self.regime.route} route")
            if answer.budget != self.regime.budget:
                raise ValueError(f"{answer.prompt}: budget {answer.budget}, the regime's is {self.regime.budget}")
            if isinstance(answer, Trace):
                most = max((round.offered for round in answer.rounds), default=0)
                fits = most <= self.regime.n_max
            else:
                most = answer.offered
                fits = most <= self.regime.n_max * (answer.passes - answer.undrafted)
                fits &= len(answer.by_position or ()) <= self.regime.n_max
                if answer.produced - answer.emitted > self.regime.n_max + 1:
                    raise ValueError(
                        f"{answer.prompt}: {answer.emitted} tokens emitted, {answer.produced} by the counters: "
                        "more than one round apart, so the rounds are miscounted"
                    )
            if not fits:
                raise ValueError(f"{answer.prompt}: {most} drafts offered, more than n_max {self.regime.n_max} a round")
        return self

    def to_json(self) -> bytes:
        return self.model_dump_json().encode()

    @classmethod
    def from_json(cls, raw: bytes) -> "Acceptance":
        """Raises Refused (speculation.record_invalid, one refusal a fault)."""
        try:
            return cls.model_validate_json(raw)
        except ValidationError as error:
            raise invalid(error, "speculation.record_invalid", "acceptance") from error
