"""An engine's own DFlash loop on a pair of GGUF files: llama-server, or the xllamacpp package, with draft-dflash.

Pinned: n-max is the block less the anchor, greedy, prompts as ids, one slot, no prompt cache.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from draftmill.host import cores
from draftmill.measurement.cross_record import CrossOptions, Gguf, Route
from draftmill.measurement.cross_rounds import rounds_of
from draftmill.measurement.device.profiles import Device
from draftmill.measurement.record import Texts
from draftmill.measurement.sampling import stop_of
from draftmill.measurement.servers.answers import Completion, Step, Timings
from draftmill.measurement.servers.did_speculate import did_speculate
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.server import Server
from draftmill.measurement.statement import check_pair
from draftmill.measurement.subject import Encoded, ran, regime_of
from draftmill.outcome import Unavailable
from draftmill.progress import Progress
from draftmill.speculation.trace import Trace

SPEC_TYPE = "draft-dflash"
SEED = 0


def run_engine(
    name: str,
    device: Device,
    files: tuple[Path, Path],
    ggufs: tuple[Gguf, Gguf],
    prompts: Sequence[Encoded],
    alone: Sequence[tuple[int, ...]],
    block: int,
    budget: int,
    options: CrossOptions,
    *,
    run: str,
    progress: Progress,
) -> Route:
    """files, ggufs: target and draft. alone: the target's own text of each prompt, for the record.

    Raises Refused for a pair or settings that the engine does not take, BadConfiguration where it is not there,
    ServerError, and Unavailable where it does not speculate or its counters make no rounds.
    """
    target, draft = files
    check_pair(target, draft)
    threads = options.threads or cores()
    context = max(len(prompt.tokens) for prompt in prompts) + budget + 2 * block
    kv: dict[str, Any] = {"cache_type_k": options.kv, "cache_type_v": options.kv}
    drafting = Drafting(draft, block - 1, 0, options.p_min, SPEC_TYPE, **kv, **device.drafting_options())
    settings = Settings(target, context, threads, drafting, **kv, **device.settings_options())
    provider = device.provider()
    answers, texts = [], []
    with Server(provider, settings, run=run) as server:
        for done, (prompt, own) in enumerate(zip(prompts, alone, strict=True)):
            progress(f"{name}: {prompt.name}", done, len(prompts))
            trace, tokens = _answer(server, prompt, block, budget)
            answers.append(trace)
            texts.append(Texts(prompt=prompt.name, alone=own, with_draft=tokens))
        what = server.what
    regime = regime_of(
        "token-exact",
        (ggufs[0].file, ggufs[1].file),
        settings,
        drafting,
        prompts,
        budget,
        SEED,
        what,
        provider.name,
        device.name,
    )
    told = {"spec_type": SPEC_TYPE, "n_min": 0, "p_min": options.p_min, "block": block}
    return Route(
        name=name,
        regime=regime.model_copy(update=told),
        ran=ran(provider.name, what),
        target=ggufs[0],
        draft=ggufs[1],
        window_rule="left",
        answers=tuple(answers),
        texts=tuple(texts),
    )


def _answer(server: Server, prompt: Encoded, block: int, budget: int) -> tuple[Trace, tuple[int, ...]]:
    client = server.client
    slots = client.slots()
    steps = client.steps(prompt.tokens, budget, seed=SEED)
    last = steps[-1]
    tokens = tuple(token for step in steps for token in step.tokens)
    if len(tokens) != last.predicted_n:
        # Some were held back, so that their ids are in the whole answer only.
        tokens = client.completion(prompt.tokens, last.predicted_n, seed=SEED).tokens
    answer = _completion(last, tokens)
    spoke = did_speculate(slots, answer, server.log)
    if not spoke.happened and len(tokens) > 2:
        raise Unavailable(f"the engine did not speculate ({spoke.cause}): {spoke.evidence}.", code="cross.silent")

    @cache
    def passes(count: int) -> int:
        timings = client.completion(prompt.tokens, count, seed=SEED).timings
        return timings.predicted_n - 1 - (timings.draft_n_accepted or 0)

    rounds = rounds_of(steps, n_max=block - 1, budget=budget, passes=passes)
    stop = stop_of(answer, budget)
    trace = Trace(
        prompt=prompt.name, budget=budget, emitted=len(tokens), stop=stop, first_token=True, rounds=rounds
    )  # fmt: skip
    return trace, tokens


def _completion(last: Step, tokens: tuple[int, ...]) -> Completion:
    timings = Timings(
        prompt_n=0,
        prompt_ms=0,
        predicted_n=last.predicted_n,
        predicted_ms=0,
        cache_n=None,
        draft_n=last.draft_n,
        draft_n_accepted=last.draft_n_accepted,
    )
    return Completion(tokens, "", last.stop, False, timings, 0)
