"""A safetensors checkpoint as a converter reads it: where each tensor's bytes lie, in llama.cpp's order of writing.

Order: parts by file name, within a part tensors by name (llama.cpp's gguf-py/gguf/utility.py, SafetensorsLocal).
"""

from dataclasses import dataclass
from pathlib import Path

from draftmill.gguf.half_precision import BYTES
from draftmill.intake.bounded_json import read_object
from draftmill.intake.findings import Findings
from draftmill.intake.safetensors_header import read_header
from draftmill.intake.weights import INDEX, INDEX_LIMIT

SINGLE = "model.safetensors"
PARTS = "model-*-of-*.safetensors"


@dataclass(frozen=True)
class SourceTensor:
    """name: Hugging Face's; kind: BF16, F16 or F32; shape: rows first; offset: absolute in `file`, in bytes."""

    name: str
    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int


def weight_files(folder: Path) -> list[Path]:
    """The files an index names, else the numbered parts, else model.safetensors; sorted by name.

    Whether parts are complete and agree with the index is intake's to say. A name that is not that of a file in the
    folder itself is left out, so that its tensors are reported as missing.
    """
    if (named := _indexed(folder)) is not None:
        return sorted({path for path in folder.iterdir() if path.name in named})
    return sorted(folder.glob(PARTS)) or [path for path in [folder / SINGLE] if path.is_file()]


def absent_files(folder: Path) -> list[str]:
    """Names that an index gives and that are no files of the folder."""
    return sorted((_indexed(folder) or set()) - {path.name for path in folder.iterdir()})


def _indexed(folder: Path) -> set[str] | None:
    """Names that an index gives to files; None where there is no index."""
    if not (folder / INDEX).is_file():
        return None
    files = read_object(folder / INDEX, INDEX, INDEX_LIMIT).get("weight_map")
    return {str(name) for name in files.values()} if isinstance(files, dict) else set()


def read_checkpoint(folder: Path) -> list[SourceTensor]:
    """Every tensor of the folder's weights.

    Raises Refused: the codes of `read_header`, convert.weights_missing, convert.tensor_twice, convert.tensor_dtype.
    """
    findings = Findings()
    tensors: dict[str, SourceTensor] = {}
    for path in weight_files(folder):
        for name, entry in sorted(read_header(path).tensors.items()):
            if name in tensors:
                findings.add(
                    "convert.tensor_twice",
                    f"{path.name}:{name}",
                    tensors[name].file.name,
                    "one file",
                    "The tensor stands in two files; take the model from its repository again.",
                )
            if entry.dtype not in BYTES:
                findings.add(
                    "convert.tensor_dtype",
                    f"{path.name}:{name}",
                    entry.dtype,
                    list(BYTES),
                    "The tensor is not plain floating point; give the repository with the unquantized weights.",
                )
            tensors[name] = SourceTensor(name, path, entry.dtype, entry.shape, entry.begin)
    if not tensors:
        findings.add(
            "convert.weights_missing",
            SINGLE,
            "no tensors",
            f"{SINGLE} or {PARTS}",
            "The folder holds no safetensors weights; download the whole repository.",
        )
    findings.raise_if_any()
    return list(tensors.values())
