from typing import Any

import pytest

from flows.runners.lines import LONGEST, LineEvents


def _events(*blocks: bytes, structured: bool = True) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    lines = LineEvents(said.append, structured=structured)
    for block in blocks:
        lines.feed(block)
    lines.close()
    return said


def _line(text: str) -> dict[str, Any]:
    return {"event": "stderr", "line": text}


def test_lines_are_put_together_from_blocks_that_end_anywhere() -> None:
    assert _events(b"on", b"e\ntw", b"o\n", b"thr", b"ee") == [_line("one"), _line("two"), _line("three")]


def test_only_objects_with_an_event_are_events() -> None:
    block = b'{"event": "log", "message": "m"}\n{"no": "event"}\n["event"]\n{"event"\n'
    assert _events(block) == [
        {"event": "log", "message": "m"},
        _line('{"no": "event"}'),
        _line('["event"]'),
        _line('{"event"'),
    ]


def test_the_other_stream_is_never_an_event() -> None:
    assert _events(b'{"event": "log"}\n', structured=False) == [_line('{"event": "log"}')]


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_a_line_that_is_too_long_is_cut_whether_it_ends_or_not_and_nothing_is_lost(end: bytes, step: int) -> None:
    whole = b"x" * (2 * LONGEST + 5) + end
    said = _events(*(whole[i : i + step] for i in range(0, len(whole), step)))
    assert [len(event["line"]) for event in said] == [LONGEST, LONGEST, 5]
