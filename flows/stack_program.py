"""How the stack's own programs speak and end: one line a step on standard output, a refusal with its exit code."""

import sys
from collections.abc import Callable

from draftmill.outcome import MillError


def say(who: str, sentence: str) -> None:
    print(f"{who}: {sentence}", flush=True)


def run(who: str, main: Callable[[], None]) -> None:
    try:
        main()
    except MillError as error:
        say(who, str(error))
        sys.exit(error.exit_code)
