"""Acceptance of a DFlash draft on a Hugging Face target, by the mill's own greedy loop: no vendor's runtime is needed.

Every prompt is decoded twice, by the loop and by the target alone one row a pass, so that losslessness is shown and not
assumed. Where the two texts part, `lossless` says why: the prefix is evaluated once more as one prompt.
"""

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np

from draftmill import __version__
from draftmill.dflash.config import DraftConfig
from draftmill.dflash.forward import Draft, WindowRule
from draftmill.dflash.proposer import DFlashProposer, check_target
from draftmill.dflash.vouching import check_vouched
from draftmill.measurement.device.memory import memory_rise, read_memory, settled_memory
from draftmill.measurement.device.profiles import Device
from draftmill.measurement.loop_prompts import encode
from draftmill.measurement.lossless import classify, first_difference
from draftmill.measurement.machine import read_machine
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.record import (
    WITH_DRAFT,
    Accepted,
    Divergence,
    LoopOptions,
    Memory,
    Prompted,
    Ran,
    Setup,
    Texts,
)
from draftmill.measurement.servers.live_process import file_digest
from draftmill.measurement.subject import Encoded, describe, describe_folder, digest_of
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.speculation.consistency import check_rows
from draftmill.speculation.greedy import decode
from draftmill.speculation.regime import Regime
from draftmill.speculation.target import Target
from draftmill.speculation.trace import Acceptance, Trace
from draftmill.speculation.transformers_loading import libraries
from draftmill.speculation.transformers_target import TransformersTarget

PROVIDER = "transformers"
STEPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Relative distance of neighbouring numbers, by dtype."""
Form = Literal["auto", "chat", "raw"]


@dataclass(frozen=True)
class _Ran:
    """What is left when the models are gone from memory."""

    encoded: list[Encoded]
    chat: bool
    traces: list[Trace]
    texts: list[Texts]
    divergences: list[Divergence]
    config: DraftConfig
    architecture: str
    context: int | None
    threads: int
    device: str
    kernel: str
    remarks: tuple[str, ...]


def measure_by_loop(
    target_folder: Path,
    draft_folder: Path,
    prompts: Sequence[Prompt],
    options: LoopOptions,
    *,
    device: Device,
    run: str,
    budget: int,
    threads: int | None,
    form: Form,
    near_tie: float,
    progress: Progress = silent,
) -> Accepted:
    """A trace a prompt. Raises Refused (`check_vouched`, `Draft.open`, `TransformersTarget.open`, `check_target`,
    measurement.context), BadConfiguration, OSError."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    libraries()  # what they take of memory is not the models'
    before = read_memory(device)
    found = _run(target_folder, draft_folder, prompts, options, budget, threads, form, near_tie, progress)
    gc.collect()
    after = settled_memory(device, before)
    config = found.config
    target = describe_folder(target_folder, found.architecture)
    architecture = "DFlashDraftModel" if config.generation == 1 else "DFlash2DraftModel"
    draft = describe(draft_folder) if draft_folder.is_file() else describe_folder(draft_folder, architecture)
    longest = max(len(each.tokens) for each in found.encoded)
    build = f"torch {version('torch')}, transformers {version('transformers')}, draftmill {__version__}"
    regime = Regime(
        drafter=draft.sha256,
        target=target.sha256,
        route="token-exact",
        spec_type=_spec_type(config, options),
        n_max=config.block_size - 1,
        n_min=None,
        p_min=None,
        fallback=options.fallback,
        block=config.block_size,
        budget=budget,
        prompts=digest_of(found.encoded),
        temperature=0.0,
        seed=None,
        backend=PROVIDER,
        device=found.device,
        threads=found.threads,
        target_kv=f"{options.dtype}/{options.dtype}",
        drafter_kv="float32/float32",
        build=build,
        kernel=found.kernel,
    )
    return Accepted(
        run=run,
        started=started,
        tool=f"draftmill {__version__}",
        target=target,
        draft=draft,
        pairing=tuple(f"{remark.where}: {remark.sentence}" for remark in config.remarks),
        regime=regime,
        setup=Setup(
            device=device.name,
            together=True,
            block=1,
            warm_up=0,
            chat=found.chat,
            context=found.context or longest + budget + config.block_size,
            near_tie=near_tie,
        ),
        machine=read_machine(),
        memory=Memory(before=before, after=after, remarks=memory_rise(before, after)),
        prompts=tuple(Prompted(name=each.name, kind=each.kind, tokens=len(each.tokens)) for each in found.encoded),
        ran={WITH_DRAFT: _what_ran(build, found)},
        remarks=found.remarks,
        acceptance=Acceptance(regime=regime, answers=tuple(found.traces)),
        silence=None,
        texts=tuple(found.texts),
        divergences=tuple(found.divergences),
        loop=options,
    )


def _run(
    target_folder: Path,
    draft_folder: Path,
    prompts: Sequence[Prompt],
    options: LoopOptions,
    budget: int,
    threads: int | None,
    form: Form,
    near_tie: float,
    progress: Progress,
) -> _Ran:
    if draft_folder.is_dir():
        check_vouched(draft_folder)
    with Draft.open(
        draft_folder, packed=options.packed, causal=options.causal, window_rule=options.window_rule
    ) as draft:
        progress("loading the target", 0, 2 * len(prompts))
        target = TransformersTarget.open(
            target_folder, draft.config.target_layer_ids, device=options.torch_device, dtype=options.dtype
        )
        check_target(draft.config, target, str(target_folder))
        used_threads = target.use_threads(threads)
        encoded, chat = encode(target_folder, prompts, form)
        proposer = DFlashProposer(draft, target)
        _require_room(encoded, target.context, budget + proposer.n_max + 1)
        check_rows(target, encoded[0].tokens, draft.config.block_size, str(target_folder))
        traces, texts = _decode_all(target, proposer, encoded, budget, target.ends, options.fallback, progress)
        return _Ran(
            encoded=encoded,
            chat=chat,
            traces=traces,
            texts=texts,
            divergences=_divergences(target, encoded, texts, near_tie, STEPS[options.dtype]),
            config=draft.config,
            architecture=target.architecture,
            context=target.context,
            threads=used_threads,
            device=target.device_name,
            kernel=target.kernel,
            remarks=_remarks(draft.config, target),
        )


def _remarks(config: DraftConfig, target: Target) -> tuple[str, ...]:
    if config.vocab_size == target.vocabulary:
        return ()
    return (
        f"the draft knows {config.vocab_size} tokens and the target's embedding has {target.vocabulary} rows: those "
        "behind are padding, or tokens that are never drafted",
    )


def _what_ran(build: str, found: _Ran) -> Ran:
    program = Path(sys.executable).resolve()
    return Ran(
        provider=PROVIDER,
        executable=str(program),
        digest=file_digest(program),
        build=build,
        libraries=(),
        devices=(found.device,),
        nodes=(),
        variant=found.kernel,
        arguments=tuple(sys.argv),
        environment={},
    )


def _decode_all(
    target: Target,
    proposer: DFlashProposer,
    encoded: Sequence[Encoded],
    budget: int,
    ends: frozenset[int],
    fallback: float | None,
    progress: Progress,
) -> tuple[list[Trace], list[Texts]]:
    traces, texts = [], []
    for done, prompt in enumerate(encoded):
        progress(f"loop: {prompt.name}", 2 * done, 2 * len(encoded))
        found = decode(target, proposer, prompt.tokens, budget=budget, ends=ends, fallback=fallback, name=prompt.name)
        progress(f"target alone: {prompt.name}", 2 * done + 1, 2 * len(encoded))
        alone = decode(target, None, prompt.tokens, budget=budget, ends=ends, name=prompt.name)
        traces.append(found.trace)
        texts.append(Texts(prompt=prompt.name, alone=alone.tokens, with_draft=found.tokens))
    progress("prompts", 2 * len(encoded), 2 * len(encoded))
    return traces, texts


def _divergences(
    target: Target, encoded: Sequence[Encoded], texts: Sequence[Texts], near_tie: float, step: float
) -> list[Divergence]:
    found = []
    for number, (prompt, text) in enumerate(zip(encoded, texts, strict=True)):
        at = first_difference(text.alone, text.with_draft)
        if at is None:
            continue
        logits = target.prefill([*prompt.tokens, *text.alone[:at]]).logits[-1]
        best, second = (int(token) for token in np.argsort(-logits, kind="stable")[:2])
        # The difference of two logits is that of their log-probabilities.
        gap = float(logits[best]) - float(logits[second])
        alone, with_draft = (tokens[at] if at < len(tokens) else None for tokens in (text.alone, text.with_draft))
        # In a narrow dtype two steps at this size are more than the limit that is meant for float32.
        kind = classify(gap, best, with_draft, max(near_tie, 2 * step * abs(float(logits[best]))))
        found.append(
            Divergence(
                prompt=prompt.name, pair=number, position=at, alone=alone, with_draft=with_draft, best=best, gap=gap,
                kind=kind,
            )
        )  # fmt: skip
    return found


def _require_room(encoded: Sequence[Encoded], context: int | None, needed: int) -> None:
    refusals = [
        Refusal(
            "measurement.context",
            prompt.name,
            len(prompt.tokens) + needed,
            context,
            "prompt, budget and drafts do not fit the target's positions: give a smaller budget, or drop the prompt",
        )
        for prompt in encoded
        if context is not None and len(prompt.tokens) + needed > context
    ]
    if refusals:
        raise Refused(*refusals)


def _spec_type(config: DraftConfig, options: LoopOptions) -> str:
    """The engine's word, with all that changes the drafts: the loop is the engine here."""
    parts = ["dflash" if config.generation == 1 else "dflash2"]
    if options.window_rule != WindowRule.EXCLUSIVE:
        parts.append(f"window {options.window_rule}")
    if options.causal is not None:
        parts.append("causal" if options.causal else "non-causal")
    if options.packed:
        parts.append("packed weights")
    return ", ".join(parts)
