"""Where two lists of rounds depart first, and why: each cause with what shows it, or "unexplained".

At the round that departs both loops stand behind the same text. One accepts draft m + 1 (m: the smaller number of
accepted drafts), the other does not. Either the target said another token there, or the drafts differ, or one of the
two ends at the budget. Causes are tried in the order of how much they prove.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from draftmill.measurement.cross_record import Cause, Departure, Gguf, Route
from draftmill.measurement.lossless import first_difference
from draftmill.measurement.subject import Encoded
from draftmill.speculation.trace import Trace


@dataclass(frozen=True)
class Window:
    """context: positions before a round's block. window: None where no layer slides. accepted: drafts that our own
    draft has right at this round with the other route's rule, None where that rule cannot differ here."""

    context: int
    window: int | None
    accepted: int | None


class Probe(Protocol):
    """The own target and draft, asked about one place of a text. tokens: new tokens before the place."""

    def target_gap(self, prompt: Encoded, tokens: Sequence[int]) -> float:
        """Of the target's two likeliest next tokens."""

    def draft_gap(self, prompt: Encoded, tokens: Sequence[int], row: int, wanted: int) -> float:
        """Of the draft's scores at a row (from 0, the first that predicts) of the round behind these tokens: the best
        over the second, or over `wanted` where that is not the best."""

    def window(self, prompt: Encoded, tokens: Sequence[int], text: Sequence[int], rule: str) -> Window:
        """text: what the target says behind these tokens."""


@dataclass(frozen=True)
class Parted:
    """round: from 0. before: new tokens in front of it. own, other: its accepted drafts."""

    round: int
    before: int
    own: int | None
    other: int | None


def parted(own: Trace, other: Trace) -> Parted | None:
    """The first round whose accepted drafts differ, or that only one list has."""
    before = 1
    for number, (one, two) in enumerate(zip(own.rounds, other.rounds, strict=False)):
        if one.accepted != two.accepted:
            return Parted(number, before, one.accepted, two.accepted)
        before += one.accepted + 1
    shared = min(own.passes, other.passes)
    if own.passes == other.passes:
        return None
    return Parted(
        shared,
        before,
        own.rounds[shared].accepted if own.passes > shared else None,
        other.rounds[shared].accepted if other.passes > shared else None,
    )


def explain(
    prompt: Encoded, own: Trace, text: Sequence[int], route: Route, at: int, probe: Probe, near_tie: float
) -> Departure | None:
    """None where they agree. text: the own loop's tokens. at: the answer's place in the route."""
    other, other_text = route.answers[at], route.texts[at].with_draft
    found = parted(own, other)
    text_at = first_difference(text, other_text)
    if found is None and text_at is None:
        return None
    if found is None:
        # The lists agree, and the texts do not: the target alone was undecided, at a round's own token.
        found = _round_of(own, text_at or 0)
    decided = found.before + min(found.own or 0, found.other or 0)
    if text_at is not None and text_at <= decided:
        why, gap, evidence = _of_text(prompt, text, text_at, route, probe, near_tie)
        before = text_at < found.before
        cause: Cause = "text parted before" if before and why != "unexplained" else why
        said = "before this round" if before else "inside this round"
        return _departure(
            prompt, route, found, text_at, cause, gap, f"{said} the texts part at token {text_at}, {why}: {evidence}"
        )
    if ended := _ended(own, other, found):
        return _departure(prompt, route, found, decided, *ended)
    if decided >= len(text):
        return _departure(prompt, route, found, decided, "unexplained", None, "neither list ends with its text")
    reason, gap, evidence = _of_draft(prompt, text, found, other, route, probe, near_tie)
    return _departure(prompt, route, found, decided, reason, gap, evidence)


def _of_text(
    prompt: Encoded, text: Sequence[int], at: int, route: Route, probe: Probe, near_tie: float
) -> tuple[Cause, float | None, str]:
    gap = probe.target_gap(prompt, text[:at])
    said = f"the target's two likeliest tokens are {gap:.4g} apart"
    if gap < near_tie:
        return "near-tie", gap, f"{said}, below {near_tie:g}"
    if route.target and route.target.rounded:
        return "quantised target", gap, f"{said}; {_types(route.target)}"
    return "unexplained", gap, f"{said}, and the route's target holds every weight of ours"


def _ended(own: Trace, other: Trace, found: Parted) -> tuple[Cause, float | None, str] | None:
    """Whether one list has no more than the budget, or the end of the text, left room for."""
    for mine, trace, theirs in ((found.own, own, found.other), (found.other, other, found.own)):
        produced = found.before + (0 if mine is None else mine + 1)
        if produced < trace.emitted or (mine is not None and theirs is not None and theirs < mine):
            continue
        whose = "the route" if trace is other else "the own loop"
        if trace.stop == "budget":
            left = trace.budget - found.before
            room = f"{left} of {trace.budget} tokens" if left else "no token"
            return "budget end", None, f"{room} left before the round: {whose} takes no draft beyond them"
        if trace.stop == "eos":
            return "end of text", None, f"{whose} ends with the text and takes no draft behind it"
    return None


def _of_draft(
    prompt: Encoded, text: Sequence[int], found: Parted, other: Trace, route: Route, probe: Probe, near_tie: float
) -> tuple[Cause, float | None, str]:
    """Both loops are told the same tokens by the target, so the drafts differ."""
    tokens = text[: found.before]
    row = min(found.own or 0, found.other or 0)
    offered = other.rounds[found.round].offered if found.round < other.passes else 0
    if route.regime.p_min and offered <= row < (found.own or 0):
        return "p_min", None, f"the gate of {route.regime.p_min:g} let {offered} drafts through"
    window = probe.window(prompt, tokens, text[found.before :], route.window_rule)
    if window.accepted is not None and window.accepted == found.other:
        said = f"behind {window.context} positions and with a window of {window.window} our own draft has"
        return "another window rule", None, f"{said} {window.accepted} right by the rule {route.window_rule} too"
    gap = probe.draft_gap(prompt, tokens, row, text[found.before + row])
    said = f"the draft's scores at its row {row + 1} are {gap:.4g} apart"
    if gap < near_tie:
        return "near-tie", gap, f"{said}, below {near_tie:g}"
    if route.target and route.target.rounded:
        return "quantised target", gap, f"{said}; its features are those of another target: {_types(route.target)}"
    if route.draft and route.draft.rounded:
        return "quantised draft", gap, f"{said}; {_types(route.draft)}"
    return "unexplained", gap, f"{said}; {_window_said(window)}"


def _types(gguf: Gguf) -> str:
    kinds = ", ".join(f"{gguf.types[kind]} tensors in {kind}" for kind in gguf.rounded)
    return f"{gguf.file.name} has {kinds}"


def _window_said(window: Window) -> str:
    if window.window is None:
        return "no layer slides, so that no window rule can differ"
    if window.accepted is None:
        return f"{window.context} positions are inside the window of {window.window}, where all rules agree"
    return f"with the route's window rule our own draft has {window.accepted} right"


def _round_of(trace: Trace, token: int) -> Parted:
    before = 1
    for number, each in enumerate(trace.rounds):
        if token < before + each.accepted + 1:
            return Parted(number, before, each.accepted, each.accepted)
        before += each.accepted + 1
    return Parted(max(trace.passes - 1, 0), before, None, None)


def _departure(
    prompt: Encoded, route: Route, found: Parted, token: int, cause: Cause, gap: float | None, evidence: str
) -> Departure:
    return Departure(
        prompt=prompt.name, route=route.name, round=found.round, tokens=found.before, own=found.own, other=found.other,
        token=token, cause=cause, gap=gap, evidence=evidence,
    )  # fmt: skip
