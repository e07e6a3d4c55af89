"""JSON whose numbers, keys and depth any reader agrees on."""

import pytest

from draftmill.intake.bounded_json import parse_object
from draftmill.outcome import Refused


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"a": 1e999}', "intake.json_invalid"),
        (b'{"a": NaN}', "intake.json_invalid"),
        (b'{"a": Infinity}', "intake.json_invalid"),
        (b'{"a": 1, "a": 2}', "intake.json_duplicate_key"),
        (b"[1]", "intake.json_not_object"),
        (b'{"a": "\\ud800"}', "intake.json_invalid"),
        (b'{"a":' + b"[" * 80 + b"]" * 80 + b"}", "intake.json_too_deep"),
    ],
)
def test_what_readers_would_disagree_about_is_refused(text: bytes, code: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_object(text, "config.json")
    assert [finding.code for finding in refused.value.refusals] == [code]


def test_the_largest_number_and_plain_nesting_are_read() -> None:
    assert parse_object(b'{"a": 1.7e308, "b": [[{"c": "\\u00e9"}]]}', "x") == {"a": 1.7e308, "b": [[{"c": "é"}]]}
