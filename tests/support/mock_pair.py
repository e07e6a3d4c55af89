"""A pair that only the mock server runs: two GGUF files with a vocabulary and nothing to compute with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter

from draftmill.measurement.device.profiles import CPU
from draftmill.measurement.plan import Plan
from draftmill.measurement.prompts import Prompt
from draftmill.measurement.servers.flags import Drafting, Settings
from tests.support.mock_server import Misbehaviour, mock_provider

PROMPTS = (
    Prompt("add", "maths", "two and two"),
    Prompt("sky", "explanation", "why is it blue"),
    Prompt("loop", "code", "while true"),
)


def write_gguf(path: Path, tokens: Sequence[str], *, chat: bool = False) -> Path:
    """A GGUF of one tensor with a byte-level vocabulary of these texts."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(tokens))
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    if chat:
        writer.add_chat_template("{{ messages }}")
    writer.add_tensor("output_norm.weight", np.ones(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def mock_files(folder: Path) -> tuple[Path, Path]:
    """(target, draft), of one vocabulary and two names."""
    tokens = [f"w{token}" for token in range(300)]
    return write_gguf(folder / "target.gguf", tokens), write_gguf(folder / "draft.gguf", tokens)


def mock_plan(folder: Path, misbehaviour: Misbehaviour = Misbehaviour(), **changes: Any) -> Plan:
    """A plan over `mock_files` on the mock."""
    target, draft = mock_files(folder)
    cache = {"cache_type_k": None, "cache_type_v": None}
    plan = Plan(
        provider=mock_provider(misbehaviour),
        settings=Settings(target, 512, 1, **cache),
        drafting=Drafting(draft, n_max=4, n_min=0, p_min=0.0, **cache),
        device=CPU,
        prompts=PROMPTS,
        run="mock",
        budget=24,
        warm_up=1,
    )
    return replace(plan, **changes)
