"""The record of one draft measured by several loops: each route's rounds, and where and why they depart from ours."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from draftmill.measurement.record import Accepted, File, Finite, Ran, Speed, Texts
from draftmill.speculation.regime import Count, Name, Record, Regime, Share, invalid
from draftmill.speculation.trace import Natural, Trace

Cause = Literal[
    "near-tie",
    "another window rule",
    "p_min",
    "budget end",
    "end of text",
    "quantised target",
    "quantised draft",
    "text parted before",
    "unexplained",
]
OWN = "own loop"


class Gguf(Record):
    """A GGUF that a route ran. made: the converter that made it here, None where it was given. types: ggml's type of
    its tensors -> how many. rounded: those in whose products an engine rounds: all but F32, for which it brings
    activations to the type's own width or to 8 bits too."""

    file: File
    made: str | None
    types: dict[str, Count]
    rounded: tuple[str, ...]


class Route(Record):
    """One loop that ran. target, draft: None where it ran the folders. window_rule: how its sliding layers see.

    texts: the tokens of each answer, beside the target's own of the own loop.
    """

    name: Name
    regime: Regime
    ran: Ran
    target: Gguf | None
    draft: Gguf | None
    window_rule: Name
    answers: tuple[Trace, ...]
    texts: tuple[Texts, ...]

    @model_validator(mode="after")
    def _has_a_text_for_each_answer(self) -> Self:
        if [text.prompt for text in self.texts] != [answer.prompt for answer in self.answers]:
            raise ValueError("texts must be of the prompts of the answers, one each")
        for text, answer in zip(self.texts, self.answers, strict=True):
            if len(text.with_draft) != answer.emitted:
                raise ValueError(f"{text.prompt}: a text of {len(text.with_draft)} tokens, {answer.emitted} emitted")
        return self


class Absent(Record):
    """A route that did not run, and why."""

    name: Name
    code: Name
    reason: Name


class Departure(Record):
    """The first round of an answer at which a route departs from the own loop.

    round: from 0, where tables and sentences count from 1. tokens: new tokens before it. own, other: accepted drafts of
    both, None where a list has ended.
    token: the new token (from 0) at which the two were decided otherwise. gap: of the two scores that decided it there
    (draft's or target's logits), None where nothing was undecided. evidence: a sentence.
    """

    prompt: Name
    route: Name
    round: Natural
    tokens: Natural
    own: Natural | None
    other: Natural | None
    token: Natural
    cause: Cause
    gap: Finite | None
    evidence: Name


class CrossOptions(Record):
    """What is pinned for the engines. near_tie: the greatest gap of two logits that counts as undecided.

    kv: type of cached keys and values. p_min: the engine's gate; 0 offers every draft, as the own loop does.
    draft_outtype: of a draft's GGUF that is made here (`cross_files.draft_gguf`).
    threads: of every route; what is not asked for is what the own loop took.
    """

    near_tie: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    kv: Literal["f32", "f16", "bf16"] = "f32"
    p_min: Share = 0.0
    draft_outtype: Literal["f32", "stored"] = "f32"
    threads: Count | None = None


class Cross(Record):
    """own: the mill's own loop with its proof of losslessness. departures: one a prompt and route that depart."""

    format: Literal[1] = 1
    what: Literal["cross"] = "cross"
    own: Accepted
    options: CrossOptions
    routes: tuple[Route, ...]
    absent: tuple[Absent, ...]
    departures: tuple[Departure, ...]

    @model_validator(mode="after")
    def _is_of_one_set(self) -> Self:
        prompts = [answer.prompt for answer in self.own.acceptance.answers] if self.own.acceptance else []
        for route in self.routes:
            if [answer.prompt for answer in route.answers] != prompts:
                raise ValueError(f"{route.name}: its answers are not of the own loop's prompts")
        known = {(route.name, prompt) for route in self.routes for prompt in prompts}
        if strange := [each for each in self.departures if (each.route, each.prompt) not in known]:
            raise ValueError(f"a departure of {strange[0].route}, {strange[0].prompt}, which did not run")
        return self


class _Report(BaseModel):
    model_config = ConfigDict(extra="ignore")

    record: Annotated[Speed | Accepted | Cross, Field(discriminator="what")]


def load_any(raw: bytes) -> Speed | Accepted | Cross:
    """The record in the report.json of any measurement. Raises Refused (measurement.report_invalid)."""
    try:
        return _Report.model_validate_json(raw).record
    except ValidationError as error:
        raise invalid(error, "measurement.report_invalid", "report") from error
