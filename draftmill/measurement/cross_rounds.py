"""The rounds of an engine's answer, out of the counters that it sends with every token.

llama-server adds a round's drafts and its accepted ones to the slot's counters before it sends the round's tokens, one
a message. So a message whose `draft_n` has grown begins a round, and what both counters grew by is that round; tokens
beyond its accepted ones and its own came from passes without a draft (no room was left, or a gate held it back).
Tokens of an unfinished character are held back, whole rounds of them perhaps. Where none of their drafts was accepted
each token is a round; only else the engine is asked again, with smaller budgets, how many passes m tokens take.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from draftmill.measurement.servers.answers import Step
from draftmill.outcome import Unavailable
from draftmill.speculation.trace import Round

Passes = Callable[[int], int]
"""Tokens of an answer, the first of the prompt's own pass included -> passes behind that one which gave them."""


def rounds_of(steps: Sequence[Step], *, n_max: int, budget: int, passes: Passes) -> tuple[Round, ...]:
    """Every pass behind the prompt's own. Raises Unavailable (cross.rounds) where the counters make no rounds."""
    rounds: list[Round] = []
    produced, offered, accepted = 1, 0, 0
    for step in steps:
        more, right = step.draft_n - offered, step.draft_n_accepted - accepted
        if not more and right:
            raise _contradiction(f"{right} drafts accepted of none")
        if more:
            new = (
                [Round(offered=more, accepted=right)]
                if step.predicted_n == produced + 1
                else _hidden(produced, step.predicted_n, more, right, n_max, budget, passes)
            )
            rounds += new
            produced += sum(each.accepted + 1 for each in new)
            offered, accepted = step.draft_n, step.draft_n_accepted
        while produced < step.predicted_n:
            rounds.append(Round(offered=0, accepted=0))
            produced += 1
    return tuple(rounds)


def _hidden(first: int, last: int, offered: int, accepted: int, n_max: int, budget: int, passes: Passes) -> list[Round]:
    """The rounds between two messages with tokens held back: first tokens before them, `last` at the second."""
    if not accepted:
        begins = list(range(first, last))
    else:
        before, begins = 0, []
        for tokens in range(first + 1, last + 1):
            # The first token behind the known ones always comes from another pass.
            now = passes(tokens)
            begins += [tokens - 1] if tokens == first + 1 or now > before else []
            before = now
    rounds = [
        Round(offered=min(n_max, budget - begin - 1), accepted=end - begin - 1) for begin, end in pairwise(begins)
    ]
    rest = offered - sum(each.offered for each in rounds), accepted - sum(each.accepted for each in rounds)
    if not 0 <= rest[1] <= rest[0] <= n_max:
        raise _contradiction(f"{offered} drafts offered and {accepted} accepted between tokens {first} and {last}")
    return [*rounds, Round(offered=rest[0], accepted=rest[1])]


def _contradiction(what: str) -> Unavailable:
    return Unavailable(
        f"the engine's counters make no rounds ({what}): a gate held drafts back where tokens were held back too, its "
        "build counts otherwise, or something else uses it; measure with --p-min 0, or name another build.",
        code="cross.rounds",
    )
