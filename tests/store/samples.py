"""What the tests publish: a model with one big and one small file, and the manifest that lists them."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from draftmill.store.interface import Store
from draftmill.store.manifest import File, Licence, Manifest, Source, SourceFile

COMMIT = "0123456789ab" + "c" * 28
RECIPE = "feedface" + "0" * 56
FOLDER = "models/amd/PARD-Tiny/0123456789ab-feedface"
BIG = 12 << 20  # three parts of 5 MiB
TWO_PARTS = 6 << 20  # two of them, and two of a local store's pieces


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


@dataclass(frozen=True)
class Publication:
    files: dict[str, Path]
    manifest: Manifest

    def contents(self) -> dict[str, bytes]:
        """Key in the store -> bytes, without the manifest."""
        return {f"{FOLDER}/{name}": path.read_bytes() for name, path in self.files.items()}


def source(**changes: Any) -> Source:
    weights = SourceFile(path="model.safetensors", size=3, sha256="ab" * 32)
    values: dict[str, Any] = {
        "origin": "hub",
        "repo": "amd/PARD-Tiny",
        "requested_revision": "main",
        "commit": COMMIT,
        "licence": "mit",
        "files": (weights,),
    }
    return Source(**{**values, **changes})


def publication(folder: Path, *, big: int = TWO_PARTS, seed: int = 0, **changes: Any) -> Publication:
    """Files below `folder` and their manifest; `changes` are members of the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {"PARD-Tiny-F16.gguf": noise(big, seed), "warp_model.bin": b"warp"}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    roles: dict[str, Any] = {"PARD-Tiny-F16.gguf": "model", "warp_model.bin": "sidecar"}
    values: dict[str, Any] = {
        "kind": "model",
        "entry": "amd/PARD-Tiny",
        "recipe": RECIPE,
        "source": source(),
        "files": tuple(
            File(path=name, size=len(data), sha256=digest(data), role=roles[name]) for name, data in contents.items()
        ),
        "tools": (),
        "parameters": {"quant": ["F16"]},
        "job_keys": {"convert": "k1"},
        "licence": Licence(id="mit"),
        "can": ("autoregressive drafting",),
        "cannot": (),
        "created": datetime.now(UTC),
    }
    return Publication({name: folder / name for name in contents}, Manifest(**{**values, **changes}))


def contents_of(store: Store) -> dict[str, bytes]:
    """Everything that a reader can see below models/."""
    return {entry.key: b"".join(store.read(entry.key)) for entry in store.entries("models/")}
