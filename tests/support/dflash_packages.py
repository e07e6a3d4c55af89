"""Small synthetic DFlash packages and checkpoints of both generations, and the real small draft where it is there."""

from pathlib import Path

REAL = Path(__file__).parents[3] / "shared/data/smollm2-dflash"


def real_draft() -> Path | None:
    return REAL if (REAL / "model.safetensors").is_file() else None
