"""Whether a sample was made with speculation: the question that no single sign of a server answers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from draftmill.measurement.servers.answers import Completion, Slot

Cause = Literal["no_spec_type", "vocabularies", "context_cannot_roll_back", "init_error", "nothing_drafted", "unknown"]

# common/speculative.cpp and tools/server/server-context.cpp; the first that is found is the cause.
_LOG_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("vocabularies", re.compile(r"target and draft vocabs are not compatible")),
    (
        "context_cannot_roll_back",
        re.compile(r"speculative decoding not supported by this context|not support partial sequence removal"),
    ),
    ("init_error", re.compile(r"failed to initialize speculative decoding")),
)


@dataclass(frozen=True)
class Speculation:
    """Whether a sample was made with speculation; `cause` and the `evidence` (a sentence or a log line) if not."""

    happened: bool
    cause: Cause | None = None
    evidence: str = ""


def did_speculate(before: Sequence[Slot], sample: Completion, log: str) -> Speculation:
    """Judges by the slot before the sample, the sample's own counter and the server's log; all three must agree.

    /health, the process and generation_settings say nothing: a server whose draft was dropped looks well.
    """
    for cause, pattern in _LOG_CAUSES:
        if line := next((line for line in log.splitlines() if pattern.search(line)), None):
            return Speculation(False, cause, line.strip())
    if not before or before[0].speculative is None:
        return Speculation(False, "unknown", "/slots does not say whether slot 0 speculates")
    if not before[0].speculative:
        return Speculation(False, "no_spec_type", "slot 0 does not speculate and the log names no failure")
    if not sample.timings.draft_n:
        return Speculation(False, "nothing_drafted", "slot 0 speculates, but the sample counts no drafted token")
    return Speculation(True)
