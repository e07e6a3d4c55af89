"""A repository as the Hub's API describes it, in the fields that huggingface_hub's client reads."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.hub.checksum import git_blob
from draftmill.hub.ref import DEFAULT_REVISION

# What the Hub keeps out of git: by its default .gitattributes, or by size.
LFS_SUFFIXES = (".safetensors", ".bin", ".gguf", ".model", ".pt", ".onnx")
LFS_FROM = 10 << 20


@dataclass(frozen=True)
class Blob:
    """A served file. digest: the SHA-256 of its content in LFS, else the id by which git names the content."""

    path: str
    size: int
    digest: str
    is_lfs: bool

    @property
    def oid(self) -> str:
        """Git's id: of the content, or of the LFS pointer that stands for it (git-lfs specification, version 1)."""
        return git_oid(self.pointer) if self.is_lfs else self.digest

    @property
    def pointer(self) -> bytes:
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.digest}\nsize {self.size}\n".encode()


def git_oid(content: bytes) -> str:
    digest = git_blob(len(content))
    digest.update(content)
    return digest.hexdigest()


@dataclass(frozen=True)
class Repository:
    """A mirror's repository as it is now: one commit, which is also its branch main."""

    name: str
    folder: Path
    commit: str
    gated: Any
    card: dict[str, Any]
    blobs: dict[str, Blob]

    def has(self, revision: str) -> bool:
        return revision in (self.commit, DEFAULT_REVISION)


def in_lfs(name: str, size: int) -> bool:
    return name.endswith(LFS_SUFFIXES) or size >= LFS_FROM


def tree_entry(blob: Blob) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "oid": blob.oid, "size": blob.size, "path": blob.path}
    if blob.is_lfs:
        entry["lfs"] = {"oid": blob.digest, "size": blob.size, "pointerSize": len(blob.pointer)}
    return entry


def model_info(repository: Repository) -> dict[str, Any]:
    siblings = []
    for blob in repository.blobs.values():
        sibling: dict[str, Any] = {"rfilename": blob.path, "size": blob.size, "blobId": blob.oid}
        if blob.is_lfs:
            sibling["lfs"] = {"sha256": blob.digest, "size": blob.size, "pointerSize": len(blob.pointer)}
        siblings.append(sibling)
    return {
        "id": repository.name,
        "modelId": repository.name,
        "sha": repository.commit,
        "private": False,
        "gated": repository.gated,
        "disabled": False,
        "tags": [],
        "cardData": repository.card,
        "siblings": siblings,
    }


def listed(info: dict[str, Any], asked: dict[str, list[str]]) -> dict[str, Any]:
    """A model as it stands in a list: files by name alone; with `expand`, its name and what was asked for."""
    info = info | {"siblings": [{"rfilename": sibling["rfilename"]} for sibling in info["siblings"]]}
    wanted = {"id", "modelId", *asked.get("expand", info)}
    if not asked.keys() & {"expand", "full", "cardData"}:
        wanted -= {"siblings", "cardData"}
    return {key: value for key, value in info.items() if key in wanted}


def card_of(licence: str | None, base_models: Iterable[str]) -> dict[str, Any]:
    card: dict[str, Any] = {"license": licence} if licence else {}
    return card | ({"base_model": list(base_models)} if base_models else {})
