"""A FastFlowLM draft package: a folder with config.json, one Q4NX container and MANIFEST.sha256, opened and written.

The manifest's form is not established (q4nx.md section 8); written is the common one of sha256sum: hex digest, two
spaces, path.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from draftmill.dflash.config import DraftConfig, read_config
from draftmill.dflash.fidelity import TensorError
from draftmill.dflash.inventory import Role, expected_tensors, match
from draftmill.dflash.layout import Layout
from draftmill.dflash.package_tensors import Matrix, TensorEncoder, check_tensors, stored_scalars
from draftmill.dflash.scalars import check_scalar
from draftmill.dflash.storage import Inventory, locate
from draftmill.dflash.vendor_config import vendor_config
from draftmill.dflash.weight_file import DEFAULT as CONTAINER
from draftmill.dflash.weight_file import find_container
from draftmill.digest import sha256_file
from draftmill.intake.findings import Findings
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.q4nx import writing
from draftmill.q4nx.container import Container
from draftmill.q4nx.encodings import Kind
from draftmill.q4nx.matrix import decode_rows
from draftmill.whole_file import write_whole
from draftmill.whole_folder import whole_folder

MANIFEST = "MANIFEST.sha256"


@dataclass(frozen=True)
class File:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Written:
    """What was written, and how far each stored tensor is from what was given."""

    folder: Path
    files: tuple[File, ...]
    errors: tuple[TensorError, ...]


class Package:
    """An opened package: its config, and its tensors as views into the mapped container. Nothing is decoded at open."""

    def __init__(self, folder: Path, config: DraftConfig, container: Container, inventory: Inventory) -> None:
        self.folder = folder
        self.config = config
        self.container = container
        self.inventory = inventory

    @classmethod
    def open(cls, folder: Path, *, causal: bool | None = None) -> Self:
        """Raises Refused with every finding: those of `read_config`, `find_container`, `Container.open`, `match`,
        `locate` and `check_scalar`. That the bytes are what they should be is the gate's to say."""
        config = read_config(folder, causal=causal)
        container = Container.open(find_container(folder, config.weight_file))
        try:
            findings = Findings()
            matched = match(config, container.tensors, container=True)
            findings.extend(matched.refusals(container.path.name, config.generation))
            inventory = locate(config, matched, container.tensors, container.path.name, findings)
            for name, located in inventory.by_name.items():
                if located.expected.role == Role.SCALAR:
                    data = container.bytes(located.entry.name)
                    if problem := check_scalar(name, located.entry, data, config, container.path.name):
                        findings.extend([problem])
            findings.raise_if_any()
        except BaseException:
            container.close()
            raise
        return cls(folder, config, container, inventory)

    def decode(self, name: str) -> np.ndarray:
        """A tensor whole, float32 of its logical shape; `name` as in `expected_tensors`. Raises KeyError."""
        located = self.inventory.by_name[name]
        return located.decode(self.container.bytes(located.entry.name))

    def decode_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows of a matrix, float32 [len(rows), K], touching only their bytes: for the codebooks. Raises KeyError,
        ValueError when it is no matrix or has no such row."""
        located = self.inventory.by_name[name]
        if located.encoding is None:
            raise ValueError(f"{name} is no matrix")
        return decode_rows(located.encoding, self.container.bytes(located.entry.name), rows)

    def close(self) -> None:
        self.container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def write(
    folder: Path,
    config: DraftConfig,
    tensors: Mapping[str, Matrix],
    *,
    encoding: Kind,
    layout: Layout | None = None,
    manifest: bool = True,
    scalars: bool | None = None,
    notices: Mapping[str, bytes] | None = None,
    account: Callable[[Written], Mapping[str, bytes]] | None = None,
    prove: Callable[[Path], object] | None = None,
    progress: Progress = silent,
) -> Written:
    """Writes a package into `folder`, which must not be there or be empty; killed at any point it is not there.

    tensors: the mill's name -> float32 values of the logical shape, read by ranges of rows; what is `Coded` keeps its
    codes where they are of the kind. encoding: of projections, Q4_1, Q4_K or BLOCK_BF16. scalars: whether the container
    repeats the config's six; None is yes in generation 1, no in 2.
    notices: licence files to carry, name -> bytes. account: gives files that speak of the others, name -> bytes.
    prove: called with the written folder before it takes its name; when it raises, nothing is left.
    Raises Refused (dflash.tensor_missing, tensor_unexplained, shape_unexpected, rows_not_whole_tiles,
    encoding_unexpected, scalar_unstorable, all_zero, q4nx.not_encodable), BadConfiguration (dflash.output_exists),
    OSError.
    """
    layout = layout or Layout()
    scalars = config.generation == 1 if scalars is None else scalars
    wanted = expected_tensors(config, scalars=False)
    check_tensors(config, wanted, tensors, encoding, layout)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadConfiguration(
            f"{folder} is there already; name a folder that is not, or remove it.", code="dflash.output_exists"
        )
    encoder = TensorEncoder(config, tensors, encoding, layout, progress)
    stored = {layout.spelled(each.name): encoder.stored(each) for each in wanted}
    if scalars:
        stored |= stored_scalars(config, layout)
    with whole_folder(folder) as partial:
        writing.write(
            partial / CONTAINER,
            stored,
            {"format": "q4nx"} if layout.aligned else None,
            header_alignment=layout.alignment if layout.aligned else 8,
            tensor_alignment=layout.alignment,
        )
        others = {**(notices or {}), "config.json": (json.dumps(vendor_config(config), indent=2) + "\n").encode()}
        for name, content in others.items():
            write_whole(partial / name, content)
        errors = tuple(encoder.errors[each.name] for each in wanted)
        written = Written(folder, described(partial, [*others, CONTAINER]), errors)
        if account:
            said = account(written)
            for name, content in said.items():
                write_whole(partial / name, content)
            more = (*written.files, *described(partial, said))
            written = replace(written, files=tuple(sorted(more, key=lambda file: file.path)))
        if manifest:
            write_whole(partial / MANIFEST, "".join(f"{file.sha256}  {file.path}\n" for file in written.files))
        if prove:
            prove(partial)
    return written


def described(folder: Path, names: Iterable[str]) -> tuple[File, ...]:
    """Files of a folder with their digests, by name."""
    return tuple(File(name, (folder / name).stat().st_size, sha256_file(folder / name)) for name in sorted(names))
