"""From the bytes a job prints to events."""

import json
from typing import Any

from flows.runners.runner import Events

LONGEST = 1 << 16
"""Bytes after which a line is cut: what a job prints must not fill our memory."""


class LineEvents:
    """Splits a stream into lines. structured: JSON objects with an "event" key are events; every other line is
    {"event": "stderr", "line": text}."""

    def __init__(self, events: Events, *, structured: bool) -> None:
        self._events = events
        self._structured = structured
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._say(self._cut(line))
        self._rest = self._cut(self._rest)

    def _cut(self, line: bytes) -> bytes:
        """Says all but the last piece of a line that is too long."""
        while len(line) > LONGEST:
            self._say(line[:LONGEST])
            line = line[LONGEST:]
        return line

    def close(self) -> None:
        if self._rest:
            self._say(self._rest)
        self._rest = b""

    def _say(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self._events(self._parse(text) or {"event": "stderr", "line": text})

    def _parse(self, text: str) -> dict[str, Any] | None:
        if not self._structured or not text.startswith("{"):
            return None
        try:
            value = json.loads(text)
        except ValueError:
            return None
        return value if isinstance(value, dict) and "event" in value else None
