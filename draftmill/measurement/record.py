"""The raw record of a measurement on a device: what ran, on what, and every sample. Figures come from results.py.

`report.json` is this record as JSON beside figures computed from it; whoever loads it computes them anew.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from draftmill.dflash.forward.attention import WindowRule
from draftmill.outcome import Refusal, Refused
from draftmill.speculation.regime import Count, Name, Record, Regime, Sha256, Share, invalid
from draftmill.speculation.trace import Acceptance, Counters, Natural, Stop

Arm = Literal["target alone", "target + draft"]
ALONE: Arm = "target alone"
WITH_DRAFT: Arm = "target + draft"
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Divergent = Literal["near-tie", "another batch width", "clear gap"]


class File(Record):
    """A GGUF file that ran; architecture, label: general.architecture and general.name as its header states them.

    Or a Hugging Face folder or a package; architecture: as its config.json states it; sha256: `folder_digest`.
    """

    name: Name
    sha256: Sha256
    size: Count
    architecture: Name
    label: str | None


class Library(Record):
    path: Name
    sha256: Sha256 | None


class Ran(Record):
    """What ran, read from the live process (draftmill.measurement.servers.providers.What)."""

    provider: Name
    executable: Name
    digest: Sha256
    build: Name
    libraries: tuple[Library, ...]
    devices: tuple[str, ...]
    nodes: tuple[str, ...]
    variant: str | None
    arguments: tuple[str, ...]
    environment: dict[str, str]


class Machine(Record):
    """Where it ran. cores: those this process may use. memory: bytes."""

    cpu: Name
    cores: Count
    memory: Count
    system: Name


class Memory(Record):
    """Bytes by counter, before any server started and after the last one ended; `remarks` tell a rise that stayed."""

    before: dict[str, int]
    after: dict[str, int]
    remarks: tuple[str, ...]


class Setup(Record):
    """How it was measured. together: both servers up at once; else one at a time, restarted for every block of `block`
    pairs. warm_up: requests of each arm that are discarded after every start."""

    device: Name
    together: bool
    block: Count
    warm_up: Natural
    chat: bool
    context: Count
    near_tie: Finite


class Prompted(Record):
    """A prompt as it was sent. tokens: how many ids."""

    name: Name
    kind: Name
    tokens: Count


class Sample(Record):
    """One request. pair: None for a warm-up. second: the arm's turn was the second of its pair.

    wall_s: from send to last byte. prompt_ms, predicted_ms: the server's own; predicted_ms covers the tokens after the
    first. cpu_s: processor time of the server meanwhile. waited_s: time its threads were ready and did not get a core.
    counters: None for the target alone, and where the engine does not count rounds.
    """

    arm: Arm
    pair: Natural | None
    second: bool
    prompt: Name
    tokens: tuple[Natural, ...]
    stop: Stop
    wall_s: Seconds
    prompt_ms: Seconds
    predicted_ms: Seconds
    cpu_s: Seconds
    waited_s: Seconds | None
    counters: Counters | None


class Divergence(Record):
    """Where the arms' answers to one prompt part: at `position` (from 0) of the new tokens.

    gap: by how much the log-probability of the target's best token exceeds its second there, one pass over the prefix;
    best: that token. "another batch width": the gap is clear, but that pass agrees with the arm with the draft, so that
    it is the target alone, one row at a time, that computes otherwise.
    """

    prompt: Name
    pair: Natural
    position: Natural
    alone: Natural | None
    with_draft: Natural | None
    best: Natural
    gap: Finite
    kind: Divergent


class Silence(Record):
    """The draft was never used, or not in some sample: why, and the evidence of it."""

    cause: Name
    evidence: str
    prompt: Name | None


class Measured(Record):
    """What every measurement states. started: UTC, ISO 8601. tool: draftmill's version."""

    format: Literal[1] = 1
    run: Name
    started: Name
    tool: Name
    target: File
    draft: File
    pairing: tuple[str, ...]
    regime: Regime
    setup: Setup
    machine: Machine
    memory: Memory
    prompts: tuple[Prompted, ...]
    ran: dict[str, Ran]
    remarks: tuple[str, ...]


class Speed(Measured):
    """Two arms of one run. samples: in the order taken. silence: then there is no ratio."""

    what: Literal["speed"] = "speed"
    samples: tuple[Sample, ...]
    divergences: tuple[Divergence, ...]
    silence: Silence | None

    @model_validator(mode="after")
    def _is_of_one_regime(self) -> Self:
        counted = tuple(sample.counters for sample in self.samples if sample.pair is not None and sample.counters)
        if counted:
            Acceptance(regime=self.regime, answers=counted)
        return self


class LoopOptions(Record):
    """What only the own loop has. dtype: of the target; the draft computes in float32. torch_device: torch's name.

    packed: the package's matrices stay 4-bit in memory. window_rule, causal: as `Draft.open`. fallback: as `decode`.
    """

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    torch_device: Name = "cpu"
    packed: bool = False
    window_rule: WindowRule = WindowRule.EXCLUSIVE
    causal: bool | None = None
    fallback: Share | None = None


class Texts(Record):
    """One prompt's new tokens: by the target alone, one row a pass, and by the speculative loop."""

    prompt: Name
    alone: tuple[Natural, ...]
    with_draft: tuple[Natural, ...]


class Accepted(Measured):
    """Acceptance by one route. acceptance: None exactly where the draft was silent.

    texts: None where the route decodes only one of the two. divergences: one for each of them that parts; pair is its
    place among them. loop: None where an engine's server ran.
    """

    what: Literal["acceptance"] = "acceptance"
    acceptance: Acceptance | None
    silence: Silence | None
    texts: tuple[Texts, ...] | None = None
    divergences: tuple[Divergence, ...] = ()
    loop: LoopOptions | None = None

    @model_validator(mode="after")
    def _has_a_text_for_each_answer(self) -> Self:
        if self.texts is None:
            return self
        answers = self.acceptance.answers if self.acceptance else ()
        if [text.prompt for text in self.texts] != [answer.prompt for answer in answers]:
            raise ValueError("texts must be of the prompts of the answers, one each")
        for text, answer in zip(self.texts, answers, strict=True):
            if len(text.with_draft) != answer.emitted:
                raise ValueError(f"{text.prompt}: a text of {len(text.with_draft)} tokens, {answer.emitted} emitted")
        return self


def paired(samples: Sequence[Sample]) -> list[tuple[Sample, Sample]]:
    """(target alone, target + draft) of each pair, in the order of pairs; warm-ups are left out.

    Raises Refused: measurement.samples_unpaired.
    """
    found: dict[int, dict[Arm, Sample]] = {}
    for sample in samples:
        if sample.pair is not None:
            found.setdefault(sample.pair, {})[sample.arm] = sample
    if lonely := [number for number, arms in found.items() if len(arms) != 2]:
        sentence = "each sample of one arm needs its partner: measure again"
        raise Refused(
            Refusal(
                "measurement.samples_unpaired", f"pair {lonely[0]}", [*found[lonely[0]]], [ALONE, WITH_DRAFT], sentence
            )
        )
    return [(found[number][ALONE], found[number][WITH_DRAFT]) for number in sorted(found)]


class _Report(BaseModel):
    """The file: the record, and results that are for other readers."""

    model_config = ConfigDict(extra="ignore")

    record: Annotated[Speed | Accepted, Field(discriminator="what")]


def load(raw: bytes) -> Speed | Accepted:
    """The record in a report.json; the figures beside it are not read.

    Raises Refused (measurement.report_invalid, one refusal a fault).
    """
    try:
        return _Report.model_validate_json(raw).record
    except ValidationError as error:
        raise invalid(error, "measurement.report_invalid", "report") from error
