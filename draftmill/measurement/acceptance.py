"""How many drafts a target accepts, by one of two routes that never mix.

counters     one server speculates, its own totals are read around every request
token-exact  two servers, the target alone and the draft alone. The target's greedy continuation is taken first; each
             round the draft continues what is accepted so far by k tokens, of which those before the first that differs
             are accepted, and the target's own next token (the bonus) follows. No gate, no engine's counting: it works
             where an engine tells nothing.
"""

from collections.abc import Callable, Sequence

from draftmill.measurement.arms import Arms
from draftmill.measurement.lossless import first_difference
from draftmill.measurement.plan import Plan, encode
from draftmill.measurement.record import WITH_DRAFT, Accepted, Silence
from draftmill.measurement.sampling import Sampler, stop_of
from draftmill.measurement.servers.client import Client
from draftmill.measurement.statement import Statement
from draftmill.measurement.subject import Encoded
from draftmill.outcome import Unavailable
from draftmill.progress import Progress, silent
from draftmill.speculation.trace import Acceptance, Counters, Round, Stop, Trace

Offer = Callable[[Sequence[int], int], Sequence[int]]
"""(all accepted tokens so far, how many) -> as many drafts, or fewer where the draft ends the text."""


def measure_by_counters(plan: Plan, progress: Progress = silent) -> Accepted:
    """One request a prompt. Raises Refused, ServerError, and Unavailable where the engine does not count its rounds."""
    statement = Statement(plan, "counters")
    answers: list[Counters] = []
    silence: Silence | None = None
    with Arms(plan.provider, {WITH_DRAFT: plan.with_draft}, run=plan.run, together=True) as arms:
        server = arms.server(WITH_DRAFT)
        prompts = encode(server.client, plan)
        sampler = Sampler(server, WITH_DRAFT, budget=plan.budget, seed=plan.seed)
        for done, prompt in enumerate(prompts):
            progress(prompt.name, done, len(prompts))
            sample = sampler.take(prompt, pair=None, second=False)
            if not sampler.speculation.happened:
                cause, evidence = sampler.speculation.cause or "unknown", sampler.speculation.evidence
                silence = Silence(cause=cause, evidence=evidence, prompt=prompt.name)
                break
            if sample.counters is None:
                raise Unavailable(
                    "this engine does not count its rounds: measure by --route token-exact.",
                    code="measurement.counters",
                )
            answers.append(sample.counters)
        progress("prompts", len(prompts), len(prompts))
    stated = statement.complete(arms, prompts, ())
    acceptance = None if silence else Acceptance(regime=stated["regime"], answers=tuple(answers))
    return Accepted(**stated, acceptance=acceptance, silence=silence)


def measure_token_exact(plan: Plan, progress: Progress = silent) -> Accepted:
    """A trace a prompt. Raises Refused, ServerError, Unavailable."""
    statement = Statement(plan, "token-exact")
    traces: list[Trace] = []
    settings = {"target": plan.settings, "draft": plan.draft_alone}
    with Arms(plan.provider, settings, run=plan.run, together=statement.together) as arms:
        target = arms.server("target").client
        prompts = encode(target, plan)
        # All continuations come first: where memory holds one server only, each starts once.
        continuations = []
        for done, prompt in enumerate(prompts):
            progress(f"target: {prompt.name}", done, 2 * len(prompts))
            continuations.append(continuation(target, prompt, plan.budget, plan.drafting.n_max, plan.seed))
        offer = _offer(arms.server("draft").client, plan.seed)
        for done, (prompt, (tokens, stop)) in enumerate(zip(prompts, continuations, strict=True)):
            progress(f"draft: {prompt.name}", len(prompts) + done, 2 * len(prompts))
            traces.append(judge(prompt, tokens, stop, offer, plan.budget, plan.drafting.n_max))
        progress("prompts", 2 * len(prompts), 2 * len(prompts))
    stated = statement.complete(arms, prompts, ())
    return Accepted(**stated, acceptance=Acceptance(regime=stated["regime"], answers=tuple(traces)), silence=None)


def continuation(target: Client, prompt: Encoded, budget: int, n_max: int, seed: int) -> tuple[tuple[int, ...], Stop]:
    """The target's own tokens: so many beyond the budget that the last round is judged like every other, and why they
    end (eos, or length for a full context)."""
    completion = target.completion(prompt.tokens, budget + n_max, seed=seed)
    return completion.tokens, stop_of(completion, budget + n_max)


def judge(prompt: Encoded, tokens: Sequence[int], stop: Stop, offer: Offer, budget: int, n_max: int) -> Trace:
    """The rounds over the target's continuation `tokens`, which may go beyond the budget by n_max."""
    emitted = min(budget, len(tokens))
    rounds: list[Round] = []
    at = 0
    while at < emitted:
        drafts = list(offer((*prompt.tokens, *tokens[:at]), n_max))[:n_max]
        ahead = tokens[at : at + len(drafts)]
        parted = first_difference(drafts, ahead)
        accepted = len(drafts) if parted is None else parted
        rounds.append(Round(offered=len(drafts), accepted=accepted))
        at += accepted + 1
    return Trace(
        prompt=prompt.name,
        budget=budget,
        emitted=emitted,
        stop="budget" if emitted == budget else stop,
        first_token=False,
        rounds=tuple(rounds),
    )


def _offer(draft: Client, seed: int) -> Offer:
    def offer(context: Sequence[int], count: int) -> Sequence[int]:
        # The slot keeps the context from round to round: nothing is timed here.
        return draft.completion(context, count, seed=seed, cache_prompt=True).tokens

    return offer
