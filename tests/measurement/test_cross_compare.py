"""Why two lists of rounds depart: each cause from its own evidence, and only from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from draftmill.measurement.cross_compare import Window, explain
from draftmill.measurement.cross_record import Gguf, Route
from draftmill.measurement.record import File, Ran, Texts
from draftmill.measurement.subject import Encoded
from draftmill.speculation.trace import Round, Trace
from tests.speculation.records import regime

PROMPT = Encoded("one", "kind", (1, 2, 3))
TEXT = tuple(range(100, 116))
"""16 new tokens."""


@dataclass
class Stated:
    """What the own models would say; none asks more than once."""

    target: float = 9.0
    draft: float = 9.0
    seen: Window | None = None

    def target_gap(self, prompt: Encoded, tokens: Sequence[int]) -> float:
        return self.target

    def draft_gap(self, prompt: Encoded, tokens: Sequence[int], row: int, wanted: int) -> float:
        assert TEXT[len(tokens) + row] == wanted
        return self.draft

    def window(self, prompt: Encoded, tokens: Sequence[int], text: Sequence[int], rule: str) -> Window:
        assert rule == "left" and tuple(text) == TEXT[len(tokens) :]
        return self.seen or Window(0, None, None)


def trace(*accepted: int, offered: int | None = None, budget: int = 16) -> Trace:
    produced = 1 + sum(each + 1 for each in accepted)
    rounds = tuple(Round(offered=7 if offered is None else offered, accepted=each) for each in accepted)
    return Trace(
        prompt="one", budget=budget, emitted=min(produced, budget), stop="budget" if produced >= budget else "eos",
        first_token=True, rounds=rounds,
    )  # fmt: skip


def gguf(*rounded: str) -> Gguf:
    file = File(name="x.gguf", sha256="0" * 64, size=1, architecture="llama", label=None)
    return Gguf(file=file, made=None, types={kind: 3 for kind in ("F32", *rounded)}, rounded=rounded)


def route(other: Trace, *, text=TEXT, target=("F32",), draft=(), p_min: float = 0.0) -> Route:
    ran = Ran(
        provider="x", executable="x", digest="0" * 64, build="x", libraries=(), devices=(), nodes=(), variant=None,
        arguments=(), environment={},
    )  # fmt: skip
    return Route(
        name="engine",
        regime=regime(route="token-exact", n_max=7, n_min=0, p_min=p_min, budget=16, temperature=0.0),
        ran=ran,
        target=gguf(*(kind for kind in target if kind != "F32")),
        draft=gguf(*draft),
        window_rule="left",
        answers=(other,),
        texts=(Texts(prompt="one", alone=TEXT, with_draft=tuple(text)[: other.emitted]),),
    )


OWN = trace(4, 2, 6)  # 1 + 5 + 3 + 7 = 16


def cause(other: Route, probe: Stated | None = None, own: Trace = OWN):
    found = explain(PROMPT, own, TEXT[: own.emitted], other, 0, probe or Stated(), 0.05)
    return found and (found.cause, found.round, found.token, found.gap)


def test_equal_lists_and_texts_do_not_depart():
    assert cause(route(trace(4, 2, 6))) is None


def test_an_engine_that_takes_no_draft_beyond_the_budget():
    """14 tokens stand; two are left: one draft and the target's own."""
    own, other = trace(4, 2, 4, 5), trace(4, 2, 4, 1)
    assert cause(route(other), own=own) == ("budget end", 3, 15, None)


def test_a_loop_that_runs_one_round_more_at_an_exact_budget():
    assert cause(route(trace(4, 2, 6, 0))) == ("budget end", 3, 16, None)


def test_a_near_tie_of_the_draft():
    """Round two: own 2, the engine 1, so that its second draft is another; tokens 0..5 stand before the round."""
    assert cause(route(trace(4, 1, 0, 6)), Stated(draft=0.03)) == ("near-tie", 1, 7, 0.03)


def test_no_near_tie_and_nothing_else_is_unexplained():
    assert cause(route(trace(4, 1, 0, 6))) == ("unexplained", 1, 7, 9.0)


def test_a_quantised_target_or_draft_is_said_after_a_near_tie():
    other = trace(4, 1, 0, 6)
    assert cause(route(other, target=("F32", "Q4_1")))[0] == "quantised target"
    assert cause(route(other, draft=("Q4_1",)))[0] == "quantised draft"
    assert cause(route(other, target=("F32", "Q4_1")), Stated(draft=0.03))[0] == "near-tie"


def test_another_window_rule_is_proven_by_our_own_draft_with_that_rule():
    other = trace(4, 1, 0, 6)
    assert cause(route(other), Stated(seen=Window(30, 16, 1)))[0] == "another window rule"
    assert cause(route(other), Stated(seen=Window(30, 16, 2)))[0] == "unexplained"


def test_a_gate_lets_fewer_drafts_through():
    other = Trace(
        prompt="one", budget=16, emitted=16, stop="budget", first_token=True,
        rounds=(Round(offered=7, accepted=4), Round(offered=1, accepted=1), *trace(0, 6).rounds),
    )  # fmt: skip
    assert cause(route(other, p_min=0.5))[0] == "p_min"
    assert cause(route(other))[0] == "unexplained"


@pytest.mark.parametrize(
    ("at", "target", "quantised", "expected"),
    [
        (7, 0.01, (), "near-tie"),
        (7, 9.0, (), "unexplained"),
        (7, 9.0, ("Q4_1",), "quantised target"),
        (2, 0.01, (), "near-tie"),
    ],
)
def test_a_text_that_parts_at_the_round_is_of_the_target(at, target, quantised, expected):
    """Token 7 is what the engine's second draft of round two was judged by; token 2 lies inside round one."""
    text = (*TEXT[:at], 999, *TEXT[at + 1 :])
    other = trace(4, 1, 0, 6) if at == 7 else trace(1, 2, 2, 5)
    found = cause(route(other, text=text, target=("F32", *quantised)), Stated(target=target))
    assert found[0] == expected and found[2] == at


def test_lists_behind_a_text_that_parted_before_say_so():
    """The texts part at token 5, the own token of round one, and the lists only in round two."""
    text = (*TEXT[:5], 999, *TEXT[6:])
    assert cause(route(trace(4, 1, 0, 6), text=text), Stated(target=0.01)) == ("text parted before", 1, 5, 0.01)
    assert cause(route(trace(4, 1, 0, 6), text=text, target=("Q4_1",)))[0] == "text parted before"
    assert cause(route(trace(4, 1, 0, 6), text=text)) == ("unexplained", 1, 5, 9.0), (
        "what parted the texts is not known"
    )


def test_a_text_that_parts_at_its_last_token_is_no_budget_end():
    """Two tokens are left: the engine ends with another last one, at a tie of the target."""
    own, other = trace(4, 2, 4, 5), trace(4, 2, 4, 1)
    text = (*TEXT[:15], 999)
    assert cause(route(other, text=text), Stated(target=0.01), own=own) == ("near-tie", 3, 15, 0.01)
