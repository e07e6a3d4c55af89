"""One draft, one target, the same prompts, by every loop at hand: ours, an engine's, transformers'.

The own loop comes first and is proven lossless; the others are held against its rounds. A route that cannot run says
why, and the others run all the same. Target and draft of the own loop are not in memory while an engine runs.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill.dflash.forward import Draft
from draftmill.measurement.cross_assisted import NAME, run_assisted
from draftmill.measurement.cross_compare import explain
from draftmill.measurement.cross_engine import run_engine
from draftmill.measurement.cross_files import check_same_draft, described, draft_gguf, target_gguf
from draftmill.measurement.cross_probe import OwnProbe
from draftmill.measurement.cross_record import Absent, Cross, CrossOptions, Departure, Gguf, Route
from draftmill.measurement.device.profiles import CPU, Device
from draftmill.measurement.loop import Form, measure_by_loop
from draftmill.measurement.loop_prompts import encode
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.record import Accepted, LoopOptions
from draftmill.measurement.servers.leftovers import reap
from draftmill.measurement.subject import Encoded
from draftmill.outcome import MillError
from draftmill.progress import Progress, silent
from draftmill.speculation.transformers_loading import load_model
from draftmill.speculation.transformers_target import TransformersTarget


@dataclass(frozen=True)
class Pair:
    """drafter: a package, a checkpoint's folder, or a GGUF. target: a Hugging Face folder. *_gguf: what an engine runs,
    None to make it below `place`."""

    drafter: Path
    target: Path
    place: Path
    target_gguf: Path | None = None
    drafter_gguf: Path | None = None


def measure_cross(
    pair: Pair,
    prompts: Sequence[Prompt],
    loop: LoopOptions,
    options: CrossOptions,
    *,
    run: str,
    budget: int,
    form: Form = "auto",
    engines: Sequence[tuple[str, Device]] = (("xllamacpp", CPU),),
    progress: Progress = silent,
) -> Cross:
    """engines: name of a route -> its device; threads that are not asked for are as many as the own loop took.

    Raises what `check_same_draft` and `measure_by_loop` raise; other routes become absent.
    """
    if pair.drafter_gguf:
        check_same_draft(pair.drafter, pair.drafter_gguf, loop.causal)
    own = measure_by_loop(
        pair.target,
        pair.drafter,
        prompts,
        loop,
        device=CPU,
        run=run,
        budget=budget,
        threads=options.threads,
        form=form,
        near_tie=options.near_tie,
        progress=progress,
    )
    options = options.model_copy(update={"threads": own.regime.threads})
    encoded, _ = encode(pair.target, prompts, form)
    routes: list[Route] = []
    absent: list[Absent] = []
    if engines:
        _run_engines(pair, own, encoded, options, engines, run, routes, absent, progress)
    departures = _with_target(pair, own, encoded, loop, options, routes, absent, progress)
    return Cross(
        own=own, options=options, routes=tuple(routes), absent=tuple(absent), departures=tuple(departures)
    )  # fmt: skip


def _run_engines(
    pair: Pair,
    own: Accepted,
    encoded: Sequence[Encoded],
    options: CrossOptions,
    engines: Sequence[tuple[str, Device]],
    run: str,
    routes: list[Route],
    absent: list[Absent],
    progress: Progress,
) -> None:
    reap()
    try:
        files, ggufs = _files(pair, own, options, progress)
    except (MillError, OSError) as error:
        absent += [_absent(name, error) for name, _ in engines]
        return
    alone = [text.alone for text in own.texts or ()]
    block = own.regime.n_max + 1
    for name, device in engines:
        try:
            routes.append(
                run_engine(
                    name, device, files, ggufs, encoded, alone, block, own.regime.budget, options,
                    run=run, progress=progress,
                )
            )  # fmt: skip
        except (MillError, OSError) as error:
            absent.append(_absent(name, error))


def _files(
    pair: Pair, own: Accepted, options: CrossOptions, progress: Progress
) -> tuple[tuple[Path, Path], tuple[Gguf, Gguf]]:
    """Target and draft."""
    dtype = own.loop.dtype if own.loop else "float32"
    target, by = (pair.target_gguf, None) if pair.target_gguf else target_gguf(pair.target, pair.place, dtype, progress)
    if pair.drafter_gguf:
        draft, how = pair.drafter_gguf, None
    elif pair.drafter.is_file():
        draft, how = pair.drafter, None
    else:
        causal = own.loop.causal if own.loop else None
        draft, how = draft_gguf(pair.drafter, target, pair.place, options.draft_outtype, causal, progress)
    return (target, draft), (described(target, by), described(draft, how))


def _with_target(
    pair: Pair,
    own: Accepted,
    encoded: Sequence[Encoded],
    loop: LoopOptions,
    options: CrossOptions,
    routes: list[Route],
    absent: list[Absent],
    progress: Progress,
) -> list[Departure]:
    """transformers' own route, and what departs anywhere: both need target and draft in this process."""
    with Draft.open(pair.drafter, packed=loop.packed, causal=loop.causal, window_rule=loop.window_rule) as draft:
        model = load_model(pair.target, device=loop.torch_device, dtype=loop.dtype)
        target = TransformersTarget(model, draft.config.target_layer_ids, str(pair.target))
        target.use_threads(options.threads)
        try:
            routes.append(run_assisted(model, draft.weights, encoded, own, progress=progress))
        except MillError as error:
            absent.append(_absent(NAME, error))
        gc.collect()
        answers = own.acceptance.answers if own.acceptance else ()
        texts = [text.with_draft for text in own.texts or ()]
        probe = OwnProbe(target, draft)
        found = (
            explain(prompt, trace, text, route, at, probe, options.near_tie)  # type: ignore[arg-type]
            for route in routes
            for at, (prompt, trace, text) in enumerate(zip(encoded, answers, texts, strict=True))
        )
        return [each for each in found if each]


def _absent(name: str, error: Exception) -> Absent:
    return Absent(name=name, code=getattr(error, "code", "") or "io", reason=str(error) or type(error).__name__)
