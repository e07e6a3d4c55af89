"""The greedy loop, driven by proposers that force every accepted count, and its ends."""

import pytest

from draftmill.speculation.figures import Definition, compute_figures
from draftmill.speculation.greedy import PATIENCE, decode
from draftmill.speculation.proposer import Proposal
from draftmill.speculation.target import ROOT, ancestors, depths
from draftmill.speculation.trace import Acceptance
from tests.speculation.records import regime
from tests.support.scripted_target import Replaying, ScriptedTarget, greedy_text

PROMPT = [1, 2, 3]


def run(accepted, budget, **options):
    text = greedy_text(PROMPT, budget + 10)
    target, proposer = ScriptedTarget(), Replaying(text, accepted)
    return text, target, proposer, decode(target, proposer, PROMPT, budget=budget, **options)


@pytest.mark.parametrize("accepted", range(8))
def test_every_accepted_count_gives_the_greedy_text(accepted):
    text, target, proposer, found = run([accepted], 40)
    assert list(found.tokens) == text[:40]
    assert all(each.accepted == accepted and each.offered == 7 for each in found.trace.rounds)
    # The first token comes from the prompt; a round adds the accepted drafts and the bonus.
    assert found.trace.passes == -(-39 // (accepted + 1))
    assert target.widths == [8] * found.trace.passes
    # What the target holds is the prompt and the text but for the newest token.
    assert target.text == PROMPT + text[: 1 + found.trace.accepted + found.trace.passes - 1]
    assert proposer.begun == PROMPT


def test_a_mixture_of_counts_is_kept_round_by_round():
    _, _, _, found = run([0, 7, 3, 0, 5], 30)
    assert [each.accepted for each in found.trace.rounds] == [0, 7, 3, 0, 5, 0, 7]
    assert (found.trace.produced, found.trace.emitted, found.trace.stop) == (30, 30, "budget")


def test_a_budget_inside_an_accepted_prefix_cuts_there():
    text, _, _, found = run([7], 12)
    assert list(found.tokens) == text[:12]
    assert [each.accepted for each in found.trace.rounds] == [7, 7]
    assert (found.trace.produced, found.trace.emitted, found.trace.stop) == (17, 12, "budget")


@pytest.mark.parametrize("place", range(12))
def test_an_end_of_text_anywhere_ends_the_text_behind_it(place):
    """At the first token, inside an accepted prefix, at a bonus: the end is the last token in each case."""
    text = greedy_text(PROMPT, 60)
    end = text[place]
    first = text.index(end)
    found = decode(ScriptedTarget(), Replaying(text, [3]), PROMPT, budget=40, ends={end})
    assert list(found.tokens) == text[: first + 1]
    assert (found.trace.stop, found.trace.emitted) == ("eos", first + 1)
    # Rounds of 4 tokens behind the first one.
    assert found.trace.passes == -(-first // 4)


def test_an_end_beyond_the_budget_is_none():
    text = greedy_text(PROMPT, 60)
    place = next(at for at in range(10, 14) if text.index(text[at]) == at)
    found = decode(ScriptedTarget(), Replaying(text, [7]), PROMPT, budget=place, ends={text[place]})
    assert (found.trace.stop, found.trace.emitted) == ("budget", place)
    last = decode(ScriptedTarget(), Replaying(text, [7]), PROMPT, budget=place + 1, ends={text[place]})
    assert (last.trace.stop, last.trace.emitted) == ("eos", place + 1)


def test_a_budget_of_one_takes_no_round_and_of_two_one():
    assert run([7], 1)[3].trace.passes == 0
    _, _, _, found = run([7], 2)
    assert (found.trace.passes, found.trace.emitted, found.trace.produced) == (1, 2, 9)


def test_without_a_proposer_it_decodes_plainly():
    target = ScriptedTarget()
    found = decode(target, None, PROMPT, budget=9)
    assert list(found.tokens) == greedy_text(PROMPT, 9)
    assert target.widths == [1] * 8
    assert (found.trace.offered, found.trace.undrafted, found.trace.passes) == (0, 8, 8)


def test_a_full_context_ends_the_text():
    text = greedy_text(PROMPT, 60)
    found = decode(ScriptedTarget(context=20), Replaying(text, [3]), PROMPT, budget=40)
    # Rounds of 8 rows fit while the committed text is at most 12: 3, 7 and 11.
    assert (found.trace.stop, found.trace.passes, found.trace.emitted) == ("length", 3, 13)


def test_a_low_running_acceptance_falls_back_to_plain_decoding():
    text, target, _, found = run([0, 1], 30, fallback=0.1)
    drafted = [each.offered for each in found.trace.rounds]
    # 2 of 28 accepted in the first four rounds is below a tenth.
    assert drafted == [7] * PATIENCE + [0] * (len(drafted) - PATIENCE)
    assert target.widths == [8] * PATIENCE + [1] * (len(drafted) - PATIENCE)
    assert list(found.tokens) == text[:30]
    assert run([0, 1], 30, fallback=0.05)[3].trace.undrafted == 0, "never below 2 of 35"
    late = run([7] + [0] * 50, 60, fallback=0.1)[3].trace
    assert late.passes - late.undrafted == 11, "7 of 70 is a tenth, 7 of 77 is below"


def test_figures_come_from_the_trace():
    _, _, _, found = run([0, 7, 3], 25)
    # 1 + 0+1 + 7+1 + 3+1 + 0+1 + 7+1 = 23 after five rounds, and a sixth of 4 gives 27.
    figures = compute_figures(Acceptance(regime=regime(budget=25, n_max=7), answers=(found.trace,)))
    pooled = figures.pooled
    assert pooled[Definition.TOKENS_UNTRUNCATED].counts == (20 + 6, 6)
    assert pooled[Definition.TOKENS_BUDGET].counts == (25, 6)
    assert pooled[Definition.ACCEPTED_PER_OFFERED].counts == (20, 42)


class Branching:
    """A tree: the wrong token and the right one side by side at each of three depths, the right one second."""

    n_max = 6

    def __init__(self, text):
        self.text, self.at = text, 0

    def begin(self, tokens, features): ...

    def propose(self, anchor):
        right = self.text[self.at + 1 : self.at + 4]
        tokens, parents, parent = [], [], ROOT
        for token in right:
            tokens += [(token + 1) % 60, token]
            parents += [parent, parent]
            parent = len(tokens) - 1
        return Proposal(tuple(tokens), tuple(parents))

    def commit(self, tokens, features):
        self.at += len(tokens)


def test_a_tree_commits_the_path_that_the_target_takes():
    text = greedy_text(PROMPT, 60)
    target = ScriptedTarget()
    found = decode(target, Branching(text), PROMPT, budget=30)
    assert list(found.tokens) == text[:30]
    assert {each.accepted for each in found.trace.rounds} == {3}
    assert target.widths == [7] * found.trace.passes


def test_depths_and_ancestors_of_a_tree():
    parents = [ROOT, 0, 0, 1, 2, ROOT]
    assert depths(parents) == [0, 1, 1, 2, 2, 0]
    assert ancestors(parents).astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 0, 1, 0, 1, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    with pytest.raises(ValueError, match="row 1 has parent 1"):
        depths([ROOT, 1])
