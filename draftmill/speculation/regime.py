"""A regime: all that a figure depends on. Figures of two regimes do not compare, and the difference has names."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from draftmill.digest import sha256_json
from draftmill.outcome import Refusal, Refused

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Route = Literal["counters", "token-exact"]


class Record(BaseModel):
    """Exact JSON in and out: no unknown key, no missing key, no coercion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def invalid(error: ValidationError, code: str, what: str) -> Refused:
    """A file that holds no such record: one refusal a fault. what: its name where the fault has no place of its own."""
    return Refused(
        *(
            Refusal(
                code,
                ".".join(str(part) for part in fault["loc"]) or what,
                fault["type"],
                "a record as draftmill writes it",
                f"{fault['msg']}: measure again, or restore the file",
            )
            for fault in error.errors(include_url=False, include_input=False)
        )
    )


class Regime(Record):
    """Every member is stated: None means "does not apply", never "unknown".

    drafter, target: SHA-256 of the files that ran. route: "counters" (the engine's own totals) or "token-exact" (each
    offered draft is judged against the target's own greedy continuation). spec_type: the engine's word
    ("draft-simple"). n_max: drafts offered a round at most (k). n_min, p_min: the engine's gates. fallback: accepted
    per offered below which the loop decodes plainly. block: rows of a verify pass. budget: new tokens asked for.
    prompts: SHA-256 of the prompt set. device: as the engine names it. target_kv, drafter_kv: "k type/v type".
    build: the engine's version and digest. kernel: the CPU or GPU variant its libraries chose.
    """

    drafter: Sha256
    target: Sha256
    route: Route
    spec_type: Name
    n_max: Count
    n_min: Annotated[int, Field(ge=0)] | None
    p_min: Share | None
    fallback: Share | None
    block: Count | None
    budget: Count
    prompts: Sha256
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    seed: int | None
    backend: Name
    device: Name
    threads: Count | None
    target_kv: Name
    drafter_kv: Name
    build: Name
    kernel: Name

    @model_validator(mode="after")
    def _is_possible(self) -> "Regime":
        if self.route == "token-exact" and self.temperature:
            raise ValueError("the token-exact route judges by the greedy continuation: temperature must be 0")
        if self.n_min is not None and self.n_min > self.n_max:
            raise ValueError(f"n_min {self.n_min} is above n_max {self.n_max}: nothing would be drafted")
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON."""
        return sha256_json(self.model_dump(mode="json"))


def comparable(one: Regime, other: Regime) -> tuple[Refusal, ...]:
    """Why figures of the two do not compare: one refusal (speculation.regime_differs) a field; empty when they do."""
    return tuple(
        Refusal(
            "speculation.regime_differs",
            field,
            getattr(one, field),
            getattr(other, field),
            f"the regimes differ in {field}: measure both in one regime, or report them side by side without a ratio",
        )
        for field in Regime.model_fields
        if getattr(one, field) != getattr(other, field)
    )
