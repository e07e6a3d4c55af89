"""A measurement as it is asked for: everything but the two files. The same for the command line and for a job."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from draftmill.gguf.header import read_header
from draftmill.host import cores
from draftmill.measurement.acceptance import measure_by_counters, measure_token_exact
from draftmill.measurement.device.profiles import Device
from draftmill.measurement.loop import measure_by_loop
from draftmill.measurement.plan import Plan
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.record import Accepted, LoopOptions, Speed
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.leftovers import reap
from draftmill.measurement.speed import measure_speed
from draftmill.measurement.subject import CACHE_TYPE
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.speculation.regime import Count, Name, Record, Route, Share
from draftmill.speculation.trace import Natural

Form = Literal["auto", "chat", "raw"]
_TEMPLATE = "tokenizer.chat_template"


class AskedPrompt(Record):
    name: Name
    kind: Name
    text: Name


class MeasurementRequest(Record):
    """route: of `acceptance`; speed always reads the counters. pairs: None for one a prompt. threads: None for every
    core this process may use. form: how prompts are sent; "auto" takes the target's chat template where it has one.
    loop: for a Hugging Face target with a DFlash draft, both folders; None for two GGUF files and an engine's server.
    The other members are those of `plan.Plan` and `flags.Drafting`.
    """

    what: Literal["speed", "acceptance"]
    route: Route = "counters"
    run: Name
    device: Device
    prompts: tuple[AskedPrompt, ...] = Field(min_length=1)
    pairs: Count | None = None
    budget: Annotated[int, Field(ge=8)] = 128
    n_max: Count = 4
    n_min: Natural = 0
    p_min: Share = 0.0
    spec_type: Name = "draft-simple"
    threads: Count | None = None
    context: Count = 2048
    seed: Natural = 0
    warm_up: Natural = 2
    form: Form = "auto"
    together: bool | None = None
    block: Count = 8
    near_tie: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    loop: LoopOptions | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.n_min > self.n_max:
            raise ValueError(f"n_min {self.n_min} is above n_max {self.n_max}: nothing would be drafted")
        if self.loop is not None and (self.what != "acceptance" or self.route != "token-exact"):
            raise ValueError("the own loop measures acceptance, by the token-exact route")
        return self


def asked_prompts(prompts: Iterable[Prompt]) -> tuple[AskedPrompt, ...]:
    return tuple(AskedPrompt(name=prompt.name, kind=prompt.kind, text=prompt.text) for prompt in prompts)


def read_request(value: Any) -> MeasurementRequest:
    """Of JSON's values. Raises BadConfiguration("measure.request") that names every member which is wrong."""
    try:
        return MeasurementRequest.model_validate_json(json.dumps(value))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise BadConfiguration(f"parameter request: {faults}", code="measure.request") from error


def new_run() -> str:
    """A name for a run: when it began, UTC, and what tells it from others of that second."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.urandom(3).hex()}"


def perform(request: MeasurementRequest, target: Path, draft: Path, progress: Progress = silent) -> Speed | Accepted:
    """Runs it here, now. The device is held by the caller. Servers that outlived an earlier run are ended first.

    Raises Refused, BadConfiguration, ServerError, Unavailable, OSError.
    """
    if request.loop is not None:
        return measure_by_loop(
            target,
            draft,
            [Prompt(prompt.name, prompt.kind, prompt.text) for prompt in request.prompts],
            request.loop,
            device=request.device,
            run=request.run,
            budget=request.budget,
            threads=request.threads,
            form=request.form,
            near_tie=request.near_tie,
            progress=progress,
        )
    reap()
    plan = plan_of(request, target, draft)
    if request.what == "speed":
        return measure_speed(plan, request.pairs or len(request.prompts), progress)
    measure = measure_by_counters if request.route == "counters" else measure_token_exact
    return measure(plan, progress)


def plan_of(request: MeasurementRequest, target: Path, draft: Path) -> Plan:
    """Raises Refused where the target is no whole GGUF, BadConfiguration where the engine is not there."""
    device = request.device
    threads = request.threads or cores()
    cache: dict[str, Any] = {"cache_type_k": CACHE_TYPE, "cache_type_v": CACHE_TYPE}
    chat = request.form == "chat" or (request.form == "auto" and _TEMPLATE in read_header(target).fields)
    return Plan(
        provider=device.provider(),
        settings=Settings(target, request.context, threads, **cache, **device.settings_options()),
        drafting=Drafting(
            draft,
            request.n_max,
            request.n_min,
            request.p_min,
            request.spec_type,
            **cache,
            **device.drafting_options(),
        ),
        device=device,
        prompts=tuple(Prompt(prompt.name, prompt.kind, prompt.text) for prompt in request.prompts),
        run=request.run,
        budget=request.budget,
        seed=request.seed,
        warm_up=request.warm_up,
        chat=chat,
        together=request.together,
        block=request.block,
        near_tie=request.near_tie,
    )
