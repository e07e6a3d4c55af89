"""What a model card's front matter says about licence and origin."""

from pathlib import Path
from typing import Any

LARGEST_CARD = 4 << 20


def card_facts(card: Any) -> tuple[str | None, tuple[str, ...]]:
    """(licence, base models) of a huggingface_hub ModelCardData, a dict, or None. "other" gives the licence's name."""
    get = card.get if hasattr(card, "get") else lambda _: None
    licence = get("license")
    if isinstance(licence, list) and len(licence) == 1:
        licence = licence[0]
    if licence == "other":
        licence = get("license_name") or "other"
    bases = get("base_model") or []
    bases = [bases] if isinstance(bases, str) else bases if isinstance(bases, list) else []
    return licence if isinstance(licence, str) else None, tuple(base for base in bases if isinstance(base, str))


def read_card(folder: Path) -> tuple[str | None, tuple[str, ...]]:
    """The facts of folder/README.md; nothing known when it is absent, too large or not readable as a card."""
    import yaml
    from huggingface_hub import metadata_load

    card = folder / "README.md"
    if not card.is_file() or card.stat().st_size > LARGEST_CARD:
        return None, ()
    try:
        return card_facts(metadata_load(card))
    except (ValueError, yaml.YAMLError):
        return None, ()
