"""What a config.json may say: an architecture we know, sane sizes, and nothing that makes a tool run foreign code."""

import re
from collections.abc import Iterator
from typing import Any

from draftmill.intake.findings import Findings

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
DRAFTS = ("DFlashDraftModel", "DFlash2DraftModel")
"""Of DFlash checkpoints, which have a converter of their own."""

SIZES = {
    "hidden_size": 1 << 16,
    "intermediate_size": 1 << 20,
    "num_hidden_layers": 1024,
    "num_attention_heads": 1024,
    "vocab_size": 1 << 22,
}
"""Keys every config needs, with the largest value we take for real."""
OPTIONAL_SIZES = {"num_key_value_heads": 1024, "head_dim": 4096, "max_position_embeddings": 1 << 24}

_ATTENTION = re.compile(r"(attn|attention|experts)_implementation")
_AUTOSET = "_attn_implementation_autoset"
_RUNS_FILE = ("model_file", "custom_pipelines", "trust_remote_code")


def check_remote_code(content: dict[str, Any], where: str, findings: Findings, *, auto_map: bool = False) -> None:
    """Looks at every key at any depth. Codes: intake.auto_map, attention_implementation, remote_code_key.

    auto_map: whether that key may be there, for what no tool is given that follows it.

    Sources: CVE-2026-4372 (an internal attention field reaches code from the hub), CVE-2026-5843 (`model_file`).
    """
    for place, key, value in _items(content):
        if value is None or value is False:
            continue
        if key == "auto_map" and auto_map:
            continue
        if key == "auto_map":
            findings.add(
                "intake.auto_map",
                f"{where}:{place}",
                str(value)[:200],
                "no auto_map",
                "The model asks tools to run Python of its repository; only models without code of their own enter.",
            )
        # transformers 4.46 to 4.5x write this flag into many configs; as a truth value it names nothing.
        elif _ATTENTION.search(key) and not (key == _AUTOSET and value is True):
            findings.add(
                "intake.attention_implementation",
                f"{where}:{place}",
                str(value)[:200],
                "no such key",
                "The key can make transformers run code from the hub (CVE-2026-4372); remove it at its source.",
            )
        elif key in _RUNS_FILE:
            findings.add(
                "intake.remote_code_key",
                f"{where}:{place}",
                str(value)[:200],
                "no such key",
                "The key makes tools run code that comes with a model; remove it at its source.",
            )


def _items(content: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(dotted place, key, value) of every object in the tree, without recursion."""
    pending: list[tuple[str, Any]] = [("", content)]
    while pending:
        place, node = pending.pop()
        inside = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in inside:
            here = f"{place}.{key}" if place else str(key)
            if isinstance(node, dict):
                yield here, str(key), value
            if isinstance(value, dict | list):
                pending.append((here, value))


def check_config(config: dict[str, Any], findings: Findings, known: tuple[str, ...] = ARCHITECTURES) -> str | None:
    """Returns the architecture, None when it is not one of the known.

    Codes: intake.architecture_missing, architecture_unknown, quantized_checkpoint, config_key_missing, config_size.
    """
    for key in ("quantization_config", "compression_config"):
        if config.get(key) is not None:
            findings.add(
                "intake.quantized_checkpoint",
                f"config.json:{key}",
                str(config[key])[:200],
                "weights in BF16, F16 or F32",
                "The checkpoint is quantized already; give the repository that holds the unquantized weights.",
            )
    for key, largest in (SIZES | OPTIONAL_SIZES).items():
        value = config.get(key)
        if value is None and key in SIZES:
            findings.add(
                "intake.config_key_missing",
                f"config.json:{key}",
                None,
                f"a whole number from 1 to {largest}",
                "The key is missing, and no default is invented for it; complete the config at its source.",
            )
        elif value is not None and not (type(value) is int and 0 < value <= largest):
            findings.add(
                "intake.config_size",
                f"config.json:{key}",
                value if isinstance(value, int | float) else str(value)[:80],
                f"a whole number from 1 to {largest}",
                "The size cannot be that of a real model; mend the config at its source.",
            )
    named = config.get("architectures")
    if not named:
        findings.add(
            "intake.architecture_missing",
            "config.json:architectures",
            named,
            list(known),
            "The config does not say which architecture the model has; complete it at its source.",
        )
        return None
    if isinstance(named, list) and len(named) == 1 and named[0] in known:
        return str(named[0])
    sentence = f"No route for architecture {str(named)[:80]}; the mill converts {', '.join(known)}."
    if isinstance(named, list) and len(named) == 1 and named[0] in DRAFTS:
        sentence = (
            "This is a DFlash draft, whose vocabulary is its target's. Download it, and convert it with `draftmill "
            "dflash convert FOLDER OUT.gguf --to gguf --target TARGET`."
        )
    findings.add(
        "intake.architecture_unknown",
        "config.json:architectures",
        str(named)[:200],
        list(known),
        sentence,
    )
    return None


def check_embedding(config: dict[str, Any], shapes: dict[str, tuple[int, ...]], findings: Findings) -> None:
    """Rows and columns of the embedding and the head against vocab_size and hidden_size. Code: intake.vocab_rows."""
    expected = (config.get("vocab_size"), config.get("hidden_size"))
    if not all(type(size) is int and size > 0 for size in expected):
        return
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in shapes and shapes[name] != expected:
            findings.add(
                "intake.vocab_rows",
                name,
                list(shapes[name]),
                list(expected),
                "The shape is not [vocab_size, hidden_size]; config and weights are of two models. Fetch both.",
            )
