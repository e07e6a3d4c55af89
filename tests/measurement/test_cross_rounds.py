"""Rounds out of an engine's streamed counters. The expected lists are counted by hand."""

import pytest

from draftmill.measurement.cross_rounds import rounds_of
from draftmill.measurement.servers.answers import Step
from draftmill.outcome import Unavailable
from draftmill.speculation.trace import Round


def step(predicted: int, drafted: int, accepted: int, tokens: int = 1) -> Step:
    return Step((7,) * tokens, predicted, drafted, accepted, "")


def lists(rounds: tuple[Round, ...]) -> list[tuple[int, int]]:
    return [(each.offered, each.accepted) for each in rounds]


def never(count: int) -> int:
    raise AssertionError(f"asked again for {count} tokens")


def test_a_message_whose_drafts_have_grown_begins_a_round():
    """Prompt's token; 2 of 7; 0 of 7; 1 of 7; then one pass without a draft at the budget."""
    steps = [step(1, 0, 0), step(2, 7, 2), step(3, 7, 2), step(4, 7, 2), step(5, 14, 2), step(6, 21, 3), step(7, 21, 3)]
    end = Step((), 8, 21, 3, "limit")
    assert lists(rounds_of([*steps, step(8, 21, 3), end], n_max=7, budget=8, passes=never)) == [
        (7, 2),
        (7, 0),
        (7, 1),
        (0, 0),
    ]


def test_an_end_inside_a_round_keeps_what_was_accepted_in_it():
    """5 of 7 accepted, and the second of them ended the text."""
    steps = [step(1, 0, 0), step(2, 7, 5), step(3, 7, 5), Step((), 3, 7, 5, "eos")]
    assert lists(rounds_of(steps, n_max=7, budget=64, passes=never)) == [(7, 5)]


def test_rounds_whose_tokens_were_all_held_back_are_asked_for():
    """An unfinished character: tokens 2 and 3 came without a message. Round one had 0 accepted, round two 2."""
    taken = {1: 0, 2: 1, 3: 2, 4: 2, 5: 2}
    steps = [step(1, 0, 0), step(4, 14, 2), step(5, 14, 2), Step((), 5, 14, 2, "limit")]
    asked: list[int] = []

    def passes(count: int) -> int:
        asked.append(count)
        return taken[count]

    assert lists(rounds_of(steps, n_max=7, budget=64, passes=passes)) == [(7, 0), (7, 2)]
    assert asked == [2, 3, 4]


def test_held_back_tokens_of_rounds_that_accepted_nothing_are_a_round_each():
    """As an engine streams smileys, three tokens each: counters of the real server, 24 tokens asked for."""
    steps = [step(1, 0, 0), step(3, 14, 0), step(6, 35, 0), Step((), 8, 49, 0, "limit")]
    assert lists(rounds_of(steps, n_max=7, budget=24, passes=never)) == [(7, 0)] * 7


def test_one_round_whose_first_tokens_were_held_back_stays_one_round():
    taken = {1: 0, 2: 1, 3: 1, 4: 1}
    steps = [step(1, 0, 0), step(4, 7, 2), Step((), 4, 7, 2, "limit")]
    assert lists(rounds_of(steps, n_max=7, budget=64, passes=taken.__getitem__)) == [(7, 2)]


@pytest.mark.parametrize(
    "steps",
    [
        [step(1, 0, 0), step(2, 0, 1)],
        [step(1, 0, 0), step(4, 21, 2)],
    ],
)
def test_counters_that_make_no_rounds_are_no_rounds(steps):
    """Accepted without a draft; three rounds' drafts where the passes say two."""
    with pytest.raises(Unavailable) as caught:
        rounds_of(steps, n_max=7, budget=64, passes={1: 0, 2: 1, 3: 2, 4: 2}.__getitem__)
    assert caught.value.code == "cross.rounds"
