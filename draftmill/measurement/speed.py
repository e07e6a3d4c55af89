"""Two arms of one run: the target alone, and the target with the draft, request by request.

The arms alternate, and which goes first is swapped at every pair (ABBA), so that whatever drifts meets both alike.
Where memory holds one server only, the same order runs in blocks of pairs, each start warmed up anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from draftmill.measurement.arms import Arms
from draftmill.measurement.lossless import divergences
from draftmill.measurement.plan import Plan, encode
from draftmill.measurement.record import ALONE, WITH_DRAFT, Arm, Divergence, Sample, Silence, Speed, paired
from draftmill.measurement.sampling import Sampler
from draftmill.measurement.servers.flags import Settings
from draftmill.measurement.statement import Statement
from draftmill.measurement.subject import Encoded
from draftmill.progress import Progress, silent

_SHORTEST_LOOP = 16
_LONGEST_PERIOD = 4
_SUM_SLACK = 0.1


@dataclass(frozen=True)
class Turn:
    """One arm's requests in a row: the numbers of the pairs they belong to, and whether its partner went before."""

    arm: Arm
    pairs: tuple[int, ...]
    second: bool


def turns(pairs: int, block: int) -> Iterator[Turn]:
    """ABBA over blocks of `block` pairs; blocks of 1 alternate request by request."""
    for number, first in enumerate(range(0, pairs, block)):
        some = tuple(range(first, min(first + block, pairs)))
        order = (ALONE, WITH_DRAFT) if number % 2 == 0 else (WITH_DRAFT, ALONE)
        yield Turn(order[0], some, second=False)
        yield Turn(order[1], some, second=True)


def measure_speed(plan: Plan, pairs: int, progress: Progress = silent) -> Speed:
    """Pair i asks prompt i modulo their number. Ends early, and without a ratio, where the draft is not used.

    Raises Refused (the two do not pair, a prompt leaves no room), ServerError and Unavailable.
    """
    statement = Statement(plan, "counters")
    settings: dict[Arm, Settings] = {ALONE: plan.settings, WITH_DRAFT: plan.with_draft}
    with Arms(plan.provider, settings, run=plan.run, together=statement.together) as arms:
        prompts = encode(arms.server(ALONE).client, plan)
        samples, silence = _take(plan, arms, prompts, pairs, 1 if statement.together else plan.block, progress)
        parted = () if silence else _divergences(plan, arms, prompts, samples)
    stated = statement.complete(arms, prompts, remarks(samples))
    return Speed(**stated, samples=tuple(samples), divergences=tuple(parted), silence=silence)


def _take(
    plan: Plan, arms: Arms[Arm], prompts: Sequence[Encoded], pairs: int, block: int, progress: Progress
) -> tuple[list[Sample], Silence | None]:
    samples: list[Sample] = []
    samplers: dict[Arm, Sampler] = {}
    done = 0
    for turn in turns(pairs, block):
        requests: list[tuple[int | None, Encoded]] = []
        if turn.arm not in samplers or not arms.is_up(turn.arm):
            samplers[turn.arm] = Sampler(arms.server(turn.arm), turn.arm, budget=plan.budget, seed=plan.seed)
            requests += [(None, prompts[number % len(prompts)]) for number in range(plan.warm_up)]
        requests += [(pair, prompts[pair % len(prompts)]) for pair in turn.pairs]
        for pair, prompt in requests:
            progress(f"{turn.arm}: {prompt.name}{'' if pair is not None else ' (warm-up)'}", done, 2 * pairs)
            sampler = samplers[turn.arm]
            samples.append(sampler.take(prompt, pair=pair, second=turn.second))
            done += pair is not None
            if not sampler.speculation.happened:
                cause, evidence = sampler.speculation.cause or "unknown", sampler.speculation.evidence
                return samples, Silence(cause=cause, evidence=evidence, prompt=prompt.name)
    progress("samples taken", 2 * pairs, 2 * pairs)
    return samples, None


def _divergences(
    plan: Plan, arms: Arms[Arm], prompts: Sequence[Encoded], samples: Sequence[Sample]
) -> Sequence[Divergence]:
    pairs = paired(samples)
    if all(alone.tokens == draft.tokens for alone, draft in pairs):
        return ()
    by_name = {prompt.name: prompt for prompt in prompts}
    return divergences(arms.server(ALONE).client, pairs, by_name, near_tie=plan.near_tie, seed=plan.seed)


def remarks(samples: Sequence[Sample]) -> list[str]:
    """What a reader of the figures should know about the samples."""
    found = []
    texts = {sample.prompt: sample.tokens for sample in samples}
    loops = sorted(prompt for prompt, tokens in texts.items() if is_loop(tokens))
    if loops:
        found.append(
            f"{len(loops)} of {len(texts)} answers repeat themselves ({', '.join(loops[:5])}): acceptance and speed of "
            "a loop are not those of text"
        )
    ended = {sample.prompt for sample in samples if sample.stop != "budget"}
    short = sorted(prompt for prompt in ended if len(texts[prompt]) < _SHORTEST_LOOP)
    if short:
        found.append(f"{len(short)} of {len(texts)} answers end after fewer than {_SHORTEST_LOOP} tokens")
    if uncounted := [
        each for each in samples if each.prompt_ms + each.predicted_ms > 1000 * each.wall_s * (1 + _SUM_SLACK)
    ]:
        found.append(
            f"in {len(uncounted)} of {len(samples)} samples the server's own times are longer than the request took: "
            "its clock is not to be trusted"
        )
    if any(sample.arm == WITH_DRAFT and sample.counters is None for sample in samples):
        found.append("the engine does not count its rounds: no figure of acceptance, measure it by --route token-exact")
    return found


def is_loop(tokens: Sequence[int]) -> bool:
    """Whether the second half, 16 tokens at least, repeats with a period of 4 tokens or fewer."""
    tail = list(tokens[len(tokens) // 2 :])
    return len(tail) >= _SHORTEST_LOOP and any(
        tail[period:] == tail[:-period] for period in range(1, _LONGEST_PERIOD + 1)
    )
