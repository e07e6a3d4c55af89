"""What is written of a draft in each form: which type each tensor gets, and why.

An upstream checkpoint goes as llama.cpp's converter takes it. Codes of a package or GGUF stay what they are wherever
GGUF has a type for them; where it has none, the weights are stored in the narrowest plain type that gives each again.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from gguf.constants import GGMLQuantizationType

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.plan import Planned, coded_tensor, plain_tensor, stored_tensor
from draftmill.dflash.inventory import Expected, Role, expected_tensors
from draftmill.dflash.package import Package
from draftmill.dflash.package_tensors import Matrix
from draftmill.gguf.half_precision import cast
from draftmill.outcome import BadConfiguration
from draftmill.q4nx.conversion import (
    Rounding,
    half_float_rounding,
    q4_1_to_gguf,
    q4_k_to_gguf,
    super_blocks_outside,
)
from draftmill.q4nx.encodings import Encoding, Kind
from draftmill.q4nx.matrix import decode
from draftmill.q4nx.tiles import GROUP, ROWS

Source = Checkpoint | Package | GgufDraft
SMALL = (Role.NORM, Role.CONV_KERNEL)
"""What llama.cpp has as F32 only: what has one extent, and what its name does not call a weight."""
_T = GGMLQuantizationType
_PLAIN = (_T.F32, _T.F16, _T.BF16)
_AS_F32 = "llama.cpp has it as F32"
_KEPT = "as it is stored"


def plan(source: Source, outtype: str) -> list[Planned]:
    """Every tensor of the draft, in the file's order.

    outtype: f32, f16 or bf16 of all matrices; auto keeps every weight; codes keeps the codes of packed matrices, though
    half floats round their factors. auto of a checkpoint is what llama.cpp's converter takes.
    Raises BadConfiguration dflash.outtype for codes of a checkpoint.
    """
    if isinstance(source, Checkpoint):
        return _plan_checkpoint(source, outtype)
    expected = {each.name: each for each in expected_tensors(source.config, scalars=False)}
    if isinstance(source, Package):
        return [_of_package(source, expected[name], outtype) for name in sorted(expected)]
    return [_of_gguf(source, expected[name], outtype) for name in source.tensors]


def _plan_checkpoint(source: Checkpoint, outtype: str) -> list[Planned]:
    if outtype == "codes":
        raise BadConfiguration(
            "A checkpoint has no codes that could be kept; choose auto, f32, f16 or bf16.", code="dflash.outtype"
        )
    kind = _first_kind(source) if outtype == "auto" else GGMLQuantizationType[outtype.upper()]
    why = "as the checkpoint's first matrix" if outtype == "auto" else _asked(outtype)
    expected = {each.name: each for each in expected_tensors(source.config, scalars=False)}
    return [
        plain_tensor(expected[name], rows, rows.kind, *(_small(expected[name]) or (kind, why)))
        for name, rows in source.tensors.items()
    ]


def _first_kind(source: Checkpoint) -> GGMLQuantizationType:
    """The converter's own guess: the type of the first tensor with two extents that has one of two bytes, else F16."""
    kinds = [rows.kind for rows in source.tensors.values() if len(rows.shape) > 1]
    return GGMLQuantizationType[next((kind for kind in kinds if kind in ("BF16", "F16")), "F16")]


def _small(expected: Expected) -> tuple[GGMLQuantizationType, str] | None:
    return (_T.F32, _AS_F32) if expected.role in SMALL else None


def _asked(outtype: str) -> str:
    return f"asked for as {outtype}"


class _PackageRows:
    """A tensor of a package, decoded by ranges of rows that begin with a whole tile."""

    def __init__(self, package: Package, expected: Expected) -> None:
        self.shape = expected.shape
        self._located = package.inventory.by_name[expected.name]
        self._data = package.container.bytes(self._located.entry.name)

    def __getitem__(self, rows: slice) -> np.ndarray:
        encoding = self._located.encoding
        if encoding is None:
            return self._located.decode(self._data)[rows]
        return decode(*self.band(*rows.indices(self.shape[0])[:2]))

    def band(self, first: int, last: int) -> tuple[Encoding, np.ndarray]:
        """The stored bytes of some rows, with their encoding."""
        assert self._located.encoding  # noqa: S101 - the caller has a matrix
        part = replace(self._located.encoding, rows=last - first)
        row = self._located.encoding.nbytes // self.shape[0]
        return part, self._data[first * row : first * row + part.nbytes]

    @property
    def whole(self) -> np.ndarray:
        return self._data


def _of_package(source: Package, expected: Expected, outtype: str) -> Planned:
    rows, located = _PackageRows(source, expected), source.inventory.by_name[expected.name]
    encoding = located.encoding
    if encoding is None:
        return plain_tensor(expected, rows, located.entry.dtype, _T.F32, _AS_F32)
    label = _LABELS.get(encoding.kind, encoding.kind.value.upper())
    if outtype not in ("auto", "codes"):
        return plain_tensor(expected, rows, label, GGMLQuantizationType[outtype.upper()], _asked(outtype), align=ROWS)
    if not encoding.packed:
        return plain_tensor(expected, rows, label, GGMLQuantizationType[label], _KEPT, align=ROWS)
    kept = _codes_kept(expected, encoding, rows, label, exact=outtype == "auto")
    if isinstance(kept, Planned):
        return kept
    kind = _narrowest(rows)
    why = f"{kept}; {kind.name} is the narrowest that gives every weight again"
    return plain_tensor(expected, rows, label, kind, why, align=ROWS)


_LABELS = {Kind.BLOCK_BF16: "BF16"}


def _codes_kept(
    expected: Expected, encoding: Encoding, rows: _PackageRows, label: str, *, exact: bool
) -> Planned | str:
    """The tensor with its codes, or why it cannot have them."""

    def coded(kind: GGMLQuantizationType, convert: Callable[[Encoding, np.ndarray], tuple], reason: str) -> Planned:
        return coded_tensor(expected, kind, label, lambda first, last: convert(*rows.band(first, last)), reason)

    if encoding.columns % GROUP:
        return f"a row of {encoding.columns} is no whole number of groups of {GROUP}"
    why = ""
    if encoding.kind == Kind.Q4_K:
        if encoding.padded_columns:
            why = f"a row of {encoding.columns} is no whole number of super-blocks of 256"
        elif outside := super_blocks_outside(encoding, rows.whole):
            blocks = encoding.rows * encoding.tile_columns
            why = f"{outside} of {blocks} super-blocks have factors of more than six bits"
        else:
            return coded(_T.Q4_K, _exactly, "block for block")
    cost = half_float_rounding(encoding, rows.whole)
    if cost.inexact and (exact or not np.isfinite(cost.bound)):
        lost = f"{cost.inexact} of {cost.groups} groups have factors that no half float gives"
        return f"{why}, and {lost}" if why else lost
    return coded(_T.Q4_1, q4_1_to_gguf, f"{why}; as Q4_1 it keeps its codes" if why else "block for block")


def _exactly(encoding: Encoding, data: np.ndarray) -> tuple[np.ndarray, Rounding]:
    return q4_k_to_gguf(encoding, data), Rounding(encoding.rows * encoding.columns // GROUP, 0, 0.0)


def _narrowest(values: Matrix) -> GGMLQuantizationType:
    """The first of F16, BF16 and F32 that holds every value."""
    held = {"F16": True, "BF16": True}
    for first in range(0, values.shape[0], ROWS):
        band = np.ascontiguousarray(values[first : first + ROWS])
        for kind, holds in held.items():
            held[kind] = holds and np.array_equal(cast(cast(band, "F32", kind), kind, "F32"), band)
        if not any(held.values()):
            break
    return GGMLQuantizationType[next((kind for kind, holds in held.items() if holds), "F32")]


def _of_gguf(source: GgufDraft, expected: Expected, outtype: str) -> Planned:
    rows = source.tensors[expected.name]
    if small := _small(expected):
        return plain_tensor(expected, rows, rows.type.name, *small)
    if outtype not in ("auto", "codes"):
        return plain_tensor(expected, rows, rows.type.name, GGMLQuantizationType[outtype.upper()], _asked(outtype))
    return stored_tensor(expected, rows.type, rows.stored, coded=rows.type not in _PLAIN, reason=_KEPT)
