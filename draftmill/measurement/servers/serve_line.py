"""The command line that serves a target with a pulled draft, in the words of the llama-server at hand."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftmill.gguf.header import read_header
from draftmill.measurement.servers.flags import Drafting, Help, Settings, command_line, read_help
from draftmill.outcome import Refused

CURRENT = "llama-server since June 2026 (and xllamacpp), whose flags the mill knows; name yours with --engine"
_CHILD = "draftmill.measurement.servers.xllamacpp_server"
_CONTEXT = 4096


@dataclass(frozen=True)
class Engine:
    """A llama-server: how it is called, variables first; the options it takes; and which one that is, in words."""

    command: tuple[str, ...]
    help: Help
    about: str


@dataclass(frozen=True)
class Use:
    """How a draft is used: tokens drafted a round at most and at least, and the least probability."""

    n_max: int = 4
    n_min: int = 0
    p_min: float = 0.0


DEFAULT_USE = Use()
BLOCK_DRAFTS = {"dflash": "draft-dflash"}
"""general.architecture of a draft that no plain draft model is -> its --spec-type. It drafts a block at once."""


def find_engine(path: Path | None, library_path: Sequence[Path] = ()) -> Engine:
    """The llama-server at `path`, asked for its own --help; without one the words of today's.

    Raises BadConfiguration where it cannot be run or is no llama-server.
    """
    if path is None:
        # What serves out of the xllamacpp package takes today's flags, and tells them without the package.
        return Engine(("llama-server",), read_help((sys.executable, "-m", _CHILD), _CHILD, {}), CURRENT)
    from draftmill.measurement.servers.providers import llama_server

    provider = llama_server(path, library_path=tuple(library_path))
    help_ = read_help(provider.command, provider.digest(), provider.environment)
    variables = [f"{name}={value}" for name, value in provider.environment.items()]
    return Engine((*(["env", *variables] if variables else []), str(path)), help_, f"{path}, by its own --help")


def serve_line(engine: Engine, draft: Path, use: Use = DEFAULT_USE, target: str = "TARGET.gguf") -> str:
    """A line for a shell. A block draft that was not measured drafts its whole block, the anchor's row left out.

    Raises Refused where the engine cannot be told to draft with a model, with every reason.
    """
    fields: dict[str, Any] = {}
    with suppress(Refused):  # whether it is a sound GGUF is not what is asked here
        fields = dict(read_header(draft).fields)
    drafting = Drafting(draft, use.n_max, use.n_min, use.p_min)
    if spec_type := BLOCK_DRAFTS.get(str(fields.get("general.architecture"))):
        block = fields.get("dflash.block_size")
        n_max = block - 1 if use == DEFAULT_USE and isinstance(block, int) and block > 1 else use.n_max
        drafting = replace(drafting, spec_type=spec_type, n_max=n_max)
    flags = draft_flags(engine.help, drafting)
    return shlex.join([*engine.command, engine.help.first("--model", "-m") or "--model", target, *flags])


def draft_flags(help_: Help, drafting: Drafting) -> Sequence[str]:
    """What `command_line` gives for the draft, and nothing of what it gives for the sake of measuring."""
    model = Path("TARGET.gguf")
    alone = command_line(help_, Settings(model, context=_CONTEXT, threads=1))
    both = command_line(help_, Settings(model, context=_CONTEXT, threads=1, draft=drafting))
    return both[len(alone) :]
