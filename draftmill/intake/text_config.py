"""The part of a config.json that says what the text model is: a model that sees or hears has it one level down."""

from typing import Any


def text_config(config: dict[str, Any]) -> dict[str, Any]:
    """`config` itself where it has no such part (transformers: PretrainedConfig.get_text_config)."""
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def stated_rows(config: dict[str, Any]) -> Any:
    """Of the embedding, as config.json states them; None where it does not. null states nothing."""
    stated = config.get("vocab_size")
    return text_config(config).get("vocab_size") if stated is None else stated
