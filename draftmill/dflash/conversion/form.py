"""The three forms of a draft, and which of them a path holds: told by what is in it, never by its name alone."""

from enum import StrEnum
from pathlib import Path

from draftmill.dflash.config import CONFIG_LIMIT, VENDOR_MODEL_TYPE
from draftmill.dflash.weight_file import names as containers
from draftmill.gguf.checkpoint import weight_files
from draftmill.intake.bounded_json import read_object
from draftmill.outcome import Refusal, Refused

MAGIC = b"GGUF"


class Form(StrEnum):
    HF = "hf"
    """A folder with config.json and safetensors, as upstream publishes drafts."""
    GGUF = "gguf"
    """One file of llama.cpp's architecture `dflash`."""
    Q4NX = "q4nx"
    """FastFlowLM's package: a folder with config.json and one Q4NX container."""


def recognise(source: Path) -> Form:
    """Raises Refused: dflash.source_missing, source_not_gguf, source_not_a_draft, source_contradicted, what
    `read_object` raises for config.json; OSError."""
    if source.is_dir():
        return _folder(source)
    if not source.is_file():
        raise _refused(
            "source_missing",
            source,
            "neither a file nor a folder",
            "There is nothing to convert under this name; name a draft's folder, or its GGUF file.",
        )
    with source.open("rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC:
        return Form.GGUF
    raise _refused(
        "source_not_gguf",
        source,
        start.hex(),
        "The file is no GGUF. Of a checkpoint or a package name the folder, in which config.json says what the weights "
        "are.",
    )


def _folder(folder: Path) -> Form:
    packed, plain = containers(folder), [path.name for path in weight_files(folder)]
    ggufs = sorted(path.name for path in folder.glob("*.gguf"))
    if not (folder / "config.json").is_file() or not (packed or plain):
        there = sorted(path.name for path in folder.iterdir())[:20]
        advice = f"Name the GGUF file itself, {ggufs[0]}." if ggufs else "Name the folder that holds the draft."
        raise _refused(
            "source_not_a_draft",
            folder,
            there,
            f"A draft's folder has config.json beside safetensors or a Q4NX container, and this one has not. {advice}",
        )
    vendor = read_object(folder / "config.json", "config.json", CONFIG_LIMIT).get("model_type") == VENDOR_MODEL_TYPE
    if vendor and packed:
        return Form.Q4NX
    if not vendor and plain:
        return Form.HF
    stated = f"model_type {VENDOR_MODEL_TYPE}" if vendor else "no FastFlowLM package"
    raise _refused(
        "source_contradicted",
        folder,
        [*packed, *plain],
        f"config.json says {stated}, and the weights beside it are those of another form; download the draft again.",
    )


def _refused(code: str, path: Path, measured: object, sentence: str) -> Refused:
    expected = "a checkpoint's folder, a package's folder, or a .gguf file"
    return Refused(Refusal(f"dflash.{code}", path.name, measured, expected, sentence))
