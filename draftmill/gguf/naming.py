"""File names by the GGUF naming convention: BaseName-SizeLabel[-FineTune]-Version[-Encoding].gguf.

Source: ggml's docs/gguf.md, "GGUF Naming Convention". A name has at least base, size and version, so that an encoding
is never taken for a fine-tune; a model without a version is v1.0. Its validating pattern allows no dot in the base
name, with which no Qwen2.5 or Llama-3.1 could be named: here a base name may hold dots.
"""

import re
from dataclasses import dataclass

_PATTERN = re.compile(
    r"(?P<base>[A-Za-z0-9.\s]+(?:-[A-Za-z0-9.\s]+)*?)"
    r"-(?P<size>(?:\d+x)?(?:\d+\.)?\d+[A-Za-z](?:-[A-Za-z]+(?:\d+\.)?\d+[A-Za-z]+)?)"
    r"(?:-(?P<finetune>[A-Za-z0-9.\s-]+?))?"
    r"-(?P<version>v\d+(?:\.\d+)*)"
    r"(?:-(?P<encoding>(?!LoRA|vocab)\w+))?"
    r"(?:-(?P<type>LoRA|vocab))?"
    r"(?:-(?P<shard>\d{5}-of-\d{5}))?"
    r"\.gguf"
)
_FIRST_RELEASE = "v1.0"
_UNFIT = re.compile(r"[^A-Za-z0-9.]+")


@dataclass(frozen=True)
class NameParts:
    """What a repository's name and the number of weights say. `organization` is the owner, None for a folder."""

    name: str
    organization: str | None
    base: str
    size: str
    finetune: str | None
    version: str | None


def name_parts(repo: str, weights: int) -> NameParts:
    """repo: `owner/name`, or a folder's name; weights: elements of all tensors of the model.

    A size in the name counts only while it agrees with the weights (so the target's size in a PARD-2 name does not),
    as `gguf.Metadata` decides it for llama.cpp's converter.
    """
    from gguf import Metadata, size_label

    name, organization, base, finetune, version, size = Metadata.get_model_id_components(repo, weights)
    # A name with a space comes back whole, with its owner.
    name = (name or repo).rpartition("/")[2]
    return NameParts(
        name=name,
        organization=organization,
        base=base or _without_size(name, size),
        size=size or size_label(weights, weights, 0, 0),
        finetune=finetune,
        version=version,
    )


def gguf_name(repo: str, weights: int, encoding: str) -> str:
    """The file's name; encoding: F16, Q4_K_M and the like. See `name_parts`."""
    parts = name_parts(repo, weights)
    version = parts.version or _FIRST_RELEASE
    if not version.startswith("v"):
        version = f"v{version}"
    stem = [_fit(parts.base), _fit(parts.size), _fit(parts.finetune or ""), version, encoding.upper()]
    return "-".join(part for part in stem if part) + ".gguf"


def parse_gguf_name(name: str) -> dict[str, str] | None:
    """The parts that are there (base, size, finetune, version, encoding, type, shard); None for any other name."""
    match = _PATTERN.fullmatch(name)
    return {key: value for key, value in match.groupdict().items() if value is not None} if match else None


def _without_size(name: str, size: str | None) -> str:
    return "-".join(part for part in name.split("-") if part.upper() != (size or "").upper()) or name


def _fit(part: str) -> str:
    return _UNFIT.sub("-", part).strip("-")
