"""The tensors of a package as they go into its container: each encoded in its turn, and measured against its source."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.fidelity import Fidelity, TensorError
from draftmill.dflash.inventory import Expected, Role, expected_tensors
from draftmill.dflash.layout import Layout
from draftmill.dflash.scalars import as_stored, scalar_values
from draftmill.dflash.storage import MATRICES
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress
from draftmill.q4nx import writing
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.fitting import require_encodable
from draftmill.q4nx.matrix import decode, encode
from draftmill.q4nx.scalars import number_bytes
from draftmill.q4nx.tiles import ROWS, from_bf16, to_bf16

PIECE = 1 << 18
"""Weights encoded at a time by one thread: 1 MiB of float32."""


class Matrix(Protocol):
    """An array, or something that reads a range of rows when it is asked for one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: slice) -> np.ndarray: ...


@runtime_checkable
class Coded(Matrix, Protocol):
    """A matrix whose source has it in codes."""

    def chunks(self, encoding: Encoding) -> np.ndarray | None:
        """The stored bytes uint8 [nbytes] with the source's own codes, None where it has no codes of this kind."""


class TensorEncoder:
    """Encodes tensors in their turn, in pieces of whole tile rows, and measures each against its source."""

    def __init__(
        self,
        config: DraftConfig,
        tensors: Mapping[str, Matrix],
        encoding: Kind,
        layout: Layout,
        progress: Progress,
    ) -> None:
        self.errors: dict[str, TensorError] = {}
        self._generation = config.generation
        self._tensors = tensors
        self._encoding = encoding
        self._layout = layout
        self._progress = progress
        self._done = 0
        self._total = sum(_stored_bytes(config, encoding, layout))

    def stored(self, expected: Expected) -> writing.Stored:
        if len(expected.shape) != 2:
            label = "F32" if _small(self._layout, self._generation) == Kind.F32 else "BF16"
            return writing.Stored(label, expected.shape, lambda: self._small(expected, label))
        whole = self._layout.encoding(self._generation, expected, self._encoding)
        return writing.Stored(whole.dtype, whole.shape, lambda: self._matrix(expected, whole))

    def _small(self, expected: Expected, label: str) -> np.ndarray:
        values = np.ascontiguousarray(self._tensors[expected.name][:], np.float32)
        require_encodable(values, expected.name)
        data = values if label == "F32" else to_bf16(values)
        fidelity = Fidelity()
        fidelity.add(values, data if label == "F32" else from_bf16(data))
        _require_weights(fidelity, expected)
        self.errors[expected.name] = fidelity.error(expected.name, label.lower(), expected.shape, 0)
        self._advance(expected.name, data.nbytes)
        return data

    def _matrix(self, expected: Expected, whole: Encoding) -> np.ndarray:
        tensor, fidelity = self._tensors[expected.name], Fidelity()
        kept = tensor.chunks(whole) if whole.packed and isinstance(tensor, Coded) else None
        out = np.empty(whole.nbytes, np.uint8) if kept is None else kept
        step = max(ROWS, PIECE // whole.columns // ROWS * ROWS)
        row = whole.nbytes // whole.rows

        def encode_piece(first: int) -> tuple[int, Fidelity]:
            piece = replace(whole, rows=min(step, whole.rows - first))
            values = np.ascontiguousarray(tensor[first : first + piece.rows], np.float32)
            require_encodable(values, expected.name)
            data = out[first * row : first * row + piece.nbytes]
            if kept is None:
                data[...] = encode(piece, values)
            found = Fidelity()
            found.add(values, decode(piece, data))
            return piece.nbytes, found

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for nbytes, found in pool.map(encode_piece, range(0, whole.rows, step)):
                fidelity.merge(found)
                self._advance(expected.name, nbytes)
        _require_weights(fidelity, expected)
        self.errors[expected.name] = fidelity.error(
            expected.name, whole.kind.value, expected.shape, whole.padded_columns
        )
        return out

    def _advance(self, name: str, nbytes: int) -> None:
        self._done += nbytes
        self._progress(name, self._done, self._total)


def _require_weights(fidelity: Fidelity, expected: Expected) -> None:
    """Raises Refused dflash.all_zero: the gate would refuse the package for it."""
    if fidelity.all_zero:
        raise Refused(
            Refusal(
                "dflash.all_zero",
                expected.name,
                "all zero",
                "weights",
                f"Every value of the {expected.role} is zero, so it computes nothing: it was never trained, or lost "
                "when it was saved. Take the checkpoint from its publisher again.",
            )
        )


def _small(layout: Layout, generation: int) -> Kind:
    return layout.small if generation == 2 else Kind.BF16


def _stored_bytes(config: DraftConfig, encoding: Kind, layout: Layout) -> Iterator[int]:
    for each in expected_tensors(config, scalars=False):
        if len(each.shape) == 2:
            yield layout.encoding(config.generation, each, encoding).nbytes
        else:
            yield int(np.prod(each.shape)) * (4 if _small(layout, config.generation) == Kind.F32 else 2)


def stored_scalars(config: DraftConfig, layout: Layout) -> dict[str, writing.Stored]:
    """The six scalars that repeat the config, by their names in the file. Raises Refused dflash.scalar_unstorable."""
    found = {}
    for name, values in scalar_values(config).items():
        label = layout.label(name)
        stored = [number for value in values if (number := as_stored(value, label)) is not None]
        if len(stored) < len(values):
            raise Refused(
                Refusal(
                    "dflash.scalar_unstorable",
                    name,
                    list(values),
                    f"what {label} can hold",
                    f"The container repeats {name} as {label}, which cannot hold this value; no draft needs it.",
                )
            )
        shape = () if layout.scalar_shape == "[]" and name != "target_layer_ids" else (len(values),)
        found[layout.spelled(name)] = writing.Stored(label, shape, number_bytes(label, stored))
    return found


def check_tensors(
    config: DraftConfig, wanted: tuple[Expected, ...], tensors: Mapping[str, Matrix], encoding: Kind, layout: Layout
) -> None:
    """Raises Refused with everything that `write` cannot write. Codes: see there."""
    findings = Findings()
    accepted = MATRICES[config.generation][Role.PROJECTION]
    if encoding not in accepted:
        findings.add(
            "dflash.encoding_unexpected",
            "encoding",
            encoding.value,
            [kind.value for kind in accepted],
            f"Packages of generation {config.generation} are not made in this encoding; choose another.",
        )
    for each in wanted:
        if each.name not in tensors:
            findings.add(
                "dflash.tensor_missing",
                each.name,
                "absent",
                list(each.shape),
                f"The {each.role} is not given, and the draft cannot run without it.",
            )
        elif tuple(tensors[each.name].shape) != each.shape:
            findings.add(
                "dflash.shape_unexpected",
                each.name,
                list(tensors[each.name].shape),
                list(each.shape),
                f"The {each.role} has another shape than the config gives it; weights and config are of two drafts.",
            )
        elif len(each.shape) == 2 and each.shape[0] % ROWS and _tiled(config, each, encoding, layout):
            findings.add(
                "dflash.rows_not_whole_tiles",
                each.name,
                each.shape[0],
                f"a multiple of {ROWS}",
                "Tiles hold 32 rows each and rows are never padded, so the container cannot hold this matrix.",
            )
    for name in sorted(tensors.keys() - {each.name for each in wanted}):
        findings.add(
            "dflash.tensor_unexplained",
            name[:200],
            name[:200],
            "absent",
            "No tensor of this draft has such a name, and none is left out silently.",
        )
    findings.raise_if_any()


def _tiled(config: DraftConfig, each: Expected, encoding: Kind, layout: Layout) -> bool:
    return layout.encoding(config.generation, each, encoding).kind not in (Kind.BF16, Kind.F32)
