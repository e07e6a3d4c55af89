"""What a stranger's text cannot do once it is shown."""

import pytest

from draftmill.reports.visible import visible


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("gnp.\u202efgg", r"gnp.\u202efgg"),
        ("a\u2066b\u2069", r"a\u2066b\u2069"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("line\u2028end\x85", r"line\u2028end\x85"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("nul\x00del\x7f", r"nul\x00del\x7f"),
    ],
)
def test_what_moves_hides_or_reorders_is_written_out(hidden: str, shown: str) -> None:
    assert visible(hidden) == shown


@pytest.mark.parametrize("text", ["SmolLM2 135M", "für 漢字 عربي 🙂", "C:\\models\\draft_n.gguf", ""])
def test_what_can_be_read_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_nothing_unprintable_is_left_of_any_character() -> None:
    assert visible("".join(map(chr, range(0x110000)))).isprintable()
