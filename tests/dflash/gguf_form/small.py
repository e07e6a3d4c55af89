"""Small drafts and a target for them, with a vocabulary of 300 tokens."""

import json
from pathlib import Path
from typing import Any

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.gguf_form.writing import write_gguf
from tests.gguf.convert_models import TINY_VOCAB, write_tiny_tokenizer
from tests.support.checkpoints import config
from tests.support.dflash_packages import checkpoint

SECOND_SIZES = {"output_multiplier": 0.25, "final_logit_softcapping": 20.0, "input_embedding_scale": 16.0}
"""Of the small draft of generation 2: each is a float32."""


def write_target(folder: Path, architecture: str = "LlamaForCausalLM", **changes: Any) -> Path:
    """A target's config.json and tokenizer; its weights are nobody's business here, nor how large it is."""
    write_tiny_tokenizer(folder)
    sizes = {"vocab_size": TINY_VOCAB, "bos_token_id": 257, "eos_token_id": 258}
    content = config(architecture, **sizes | changes)
    untold = {"hidden_size", "num_hidden_layers"} - changes.keys()
    (folder / "config.json").write_text(json.dumps({k: v for k, v in content.items() if k not in untold}))
    return folder


def write_checkpoint(folder: Path, generation: int = 1, **changes: Any) -> Path:
    checkpoint(folder, generation, **{"vocab_size": TINY_VOCAB} | changes)  # type: ignore[arg-type]
    return folder


def write_draft(folder: Path, generation: int = 1, outtype: str = "auto", **changes: Any) -> Path:
    """A GGUF draft in `folder`, beside the checkpoint and target that it is made of."""
    source = write_checkpoint(folder / "checkpoint", generation, **changes)
    with Checkpoint.open(source) as opened:
        return write_gguf(opened, write_target(folder / "target"), folder / "draft.gguf", outtype=outtype).path
