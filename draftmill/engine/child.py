"""The process that holds the model: `python -m draftmill.engine.child PARENT_PID`, one JSON request and reply a line.

Requests: {"do": "load", "path", "vocab_only"}, {"do": "tokenize", "texts", "add_special"}, {"do": "pieces"},
{"do": "generate", "prompt", "count", "threads"}. A reply is {"ok": value} or {"error": sentence, "code": stable}. It
ends at the end of its standard input, and on Linux the kernel kills it when its parent dies.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from draftmill.engine.library import LoadFailed, Model
from draftmill.engine.orphan import die_with_parent
from draftmill.outcome import MillError


class _Server:
    def __init__(self) -> None:
        self.model: Model | None = None

    def answer(self, request: dict[str, Any]) -> Any:
        if request["do"] == "load":
            self.model = Model(Path(request["path"]), vocab_only=request["vocab_only"])
            return self.model.n_tokens
        assert self.model is not None  # noqa: S101 - the parent loads first
        if request["do"] == "tokenize":
            return [self.model.tokenize(text, add_special=request["add_special"]) for text in request["texts"]]
        if request["do"] == "pieces":
            # Latin-1 carries any byte string through JSON, one character a byte.
            return [self.model.piece(token).decode("latin-1") for token in range(self.model.n_tokens)]
        if request["do"] == "generate":
            return self.model.generate(request["prompt"], request["count"], request["threads"])
        raise ValueError(request["do"])


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The replies keep a descriptor of their own: whatever C++ prints to standard output goes to the log.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = _Server()
    for line in sys.stdin:
        reply: dict[str, Any]
        try:
            reply = {"ok": server.answer(json.loads(line))}
        except LoadFailed:
            reply = {"error": "the engine did not load the file", "code": "engine.load"}
        except MillError as error:
            reply = {"error": str(error), "code": error.code}
        except RuntimeError as error:
            reply = {"error": str(error), "code": "engine.run"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
