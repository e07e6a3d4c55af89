"""Packages that the self-test spoils: sound ones of both generations, and edits that touch one thing at a time."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.dflash.layout import Layout
from draftmill.dflash.package import CONTAINER, MANIFEST, write
from draftmill.dflash.storage import PUBLISHED
from draftmill.dflash.synthetic import synthetic_config, synthetic_tensors
from draftmill.q4nx import writing
from draftmill.q4nx.container import Container
from draftmill.q4nx.encodings import Kind
from draftmill.q4nx.writing import Stored

Tensors = dict[str, Stored]
PAGE = 4096


def write_first(folder: Path) -> None:
    """Generation 1 as the vendor writes it."""
    config = synthetic_config(1)
    write(folder, config, synthetic_tensors(config), encoding=PUBLISHED[1])


def write_second(folder: Path) -> None:
    """Generation 2, codebooks packed, no scalars."""
    config = synthetic_config(2)
    write(folder, config, synthetic_tensors(config), encoding=PUBLISHED[2])


def write_plain_second(folder: Path) -> None:
    """Generation 2 with plain codebooks and with scalars: what the other form does not have."""
    config = synthetic_config(2)
    layout = Layout(codebooks=Kind.BF16)
    write(folder, config, synthetic_tensors(config), encoding=PUBLISHED[2], layout=layout, scalars=True)


def write_plain_first(folder: Path) -> None:
    """Generation 1 without tiles: every matrix is a BF16 block matrix."""
    config = synthetic_config(1)
    write(folder, config, synthetic_tensors(config), encoding=Kind.BLOCK_BF16)


def sign(folder: Path) -> None:
    """Makes the manifest true again."""
    names = ("config.json", CONTAINER)
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / MANIFEST).write_text("".join(lines))


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    sign(folder)


def edit_tensors(folder: Path, change: Callable[[Tensors], object]) -> None:
    """Writes the container again with other tensors; the manifest follows."""
    path = folder / CONTAINER
    with Container.open(path) as container:
        tensors = {
            name: Stored(entry.dtype, entry.shape, container.bytes(name).copy())
            for name, entry in container.tensors.items()
        }
    change(tensors)
    writing.write(path, tensors)
    sign(folder)


def bytes_of(tensor: Stored) -> np.ndarray:
    """The bytes of a tensor in `edit_tensors`, which may be changed in place."""
    assert isinstance(tensor.data, np.ndarray)  # noqa: S101 - edit_tensors makes only such
    return tensor.data


def edit_bytes(folder: Path, change: Callable[[bytearray], object]) -> None:
    """Changes the container's bytes as they lie in the file; the manifest follows."""
    path = folder / CONTAINER
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    sign(folder)


def punch_hole(folder: Path, tensor: str) -> None:
    """Writes the container anew without the first whole page inside a tensor."""
    path = folder / CONTAINER
    with Container.open(path) as container:
        begin = -(-container.tensors[tensor].begin // PAGE) * PAGE
    data = path.read_bytes()
    path.unlink()
    with path.open("wb") as file:
        file.write(data[:begin])
        file.seek(PAGE, os.SEEK_CUR)
        file.write(data[begin + PAGE :])
    sign(folder)
