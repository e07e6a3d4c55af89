"""Every weight of a product against its source: finite, and no further off than its type explains.

Streams rows in threads (NumPy and pread let go of the interpreter lock). Blocks are summed in float32, their sums in
float64 and in file order, so that a result does not depend on the threads. Memory: about 30 MB a thread.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import isfinite, prod, sqrt
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType

from draftmill.gguf.product_check_floors import (
    BLOCK_LIMIT,
    KNOWN_TYPES,
    TENSOR_LIMIT,
    block_of,
    cosine_floor,
    predicted_square_error,
)
from draftmill.gguf.product_check_reference import GGUFRows, Reference
from draftmill.gguf.size_prediction import ExpectedTensor
from draftmill.intake.findings import Findings
from draftmill.progress import Progress, silent

CHUNK = 1 << 19
"""Values compared at a time."""


@dataclass(frozen=True)
class Fidelity:
    """One tensor against its source.

    cosine and relative_rms: against the source's values; predicted_rms: relative, what the type's steps explain;
    ratio: relative_rms / predicted_rms; worst_block: the same for the worst block; not_finite: values NaN or infinite.
    Numbers that cannot be formed are None.
    """

    name: str
    type: str
    cosine: float | None
    cosine_floor: float | None
    relative_rms: float | None
    predicted_rms: float | None
    ratio: float | None
    worst_block: float | None
    not_finite: int
    source_not_finite: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Sums:
    source: float
    product: float
    error: float
    predicted: float
    worst: float
    not_finite: int
    source_not_finite: int


def compare_weights(
    tensors: list[ExpectedTensor], product: GGUFRows, reference: Reference, progress: Progress = silent
) -> tuple[list[Fidelity], Findings]:
    """Compares the tensors, which both sides hold in the expected shape.

    Findings: check.source_missing, check.source_shape, check.source_not_finite, check.not_finite,
    check.type_unmeasured, check.tensor_error (a whole tensor is further off than its type explains), check.block_error
    (one block is).
    """
    findings = Findings()
    wanted = [tensor for tensor in tensors if _comparable(tensor, product, reference, findings)]
    chunks = [(tensor, start, stop) for tensor in wanted for start, stop in _chunks(tensor)]
    sums: dict[str, list[_Sums]] = {tensor.name: [] for tensor in wanted}
    total, done = sum(prod(tensor.shape) for tensor in wanted), 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda chunk: _measure(chunk[0], product, reference, chunk[1], chunk[2]), chunks)
        for (tensor, start, stop), result in zip(chunks, results, strict=True):
            sums[tensor.name].append(result)
            done += (stop - start) * tensor.shape[-1]
            progress("weights compared", done, total)
    fidelities = [_judge(tensor.name, product, sums[tensor.name], findings) for tensor in wanted]
    return fidelities, findings


def _comparable(tensor: ExpectedTensor, product: GGUFRows, reference: Reference, findings: Findings) -> bool:
    found = reference.shape(tensor)
    if found is None:
        findings.add(
            "check.source_missing",
            tensor.source or tensor.name,
            None,
            list(tensor.shape),
            f"{reference.name} has no such tensor to hold the product against; convert from the whole checkpoint.",
        )
    elif found != tensor.shape:
        findings.add(
            "check.source_shape",
            tensor.source or tensor.name,
            list(found),
            list(tensor.shape),
            f"The tensor of {reference.name} has another shape than config.json says; the two do not belong together.",
        )
    kind = product.header.tensors[tensor.name].type
    if kind not in KNOWN_TYPES:
        findings.add(
            "check.type_unmeasured",
            tensor.name,
            kind.name,
            sorted(known.name for known in KNOWN_TYPES),
            "No error is derived for this type, so the tensor cannot be judged; choose another quantization.",
        )
    return found == tensor.shape and kind in KNOWN_TYPES


def _chunks(tensor: ExpectedTensor) -> Iterator[tuple[int, int]]:
    """Rows of about `CHUNK` values; whole heads where they are turned. A vector is one row."""
    if len(tensor.shape) == 1:
        yield 0, 1
        return
    rows, columns = tensor.shape
    unit = rows // tensor.heads if tensor.heads else 1
    step = max(1, CHUNK // columns // unit) * unit
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def _measure(tensor: ExpectedTensor, product: GGUFRows, reference: Reference, start: int, stop: int) -> _Sums:
    kind = product.header.tensors[tensor.name].type
    block = block_of(kind, tensor.shape[-1])
    source, measured = (side.rows(tensor, start, stop).reshape(-1, block) for side in (reference, product))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = measured - source
        error = _squares(difference)
    if not np.isfinite(error.sum()):
        bad, source_bad = (int(values.size - np.isfinite(values).sum()) for values in (measured, source))
        if bad or source_bad:
            return _Sums(0, 0, 0, 0, 0, not_finite=bad, source_not_finite=source_bad)
        source, measured = source.astype(np.float64), measured.astype(np.float64)
        error = _squares(measured - source)
    predicted = predicted_square_error(source, kind)
    if tensor.source is None:
        # Computed in float32 by whoever converted, in an order of operations of their own.
        predicted = predicted + 2.0**-40 * _squares(source)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(error == 0, 0, error / predicted)
    return _Sums(
        source=_total(_squares(source)),
        product=_total(_squares(measured)),
        error=_total(error),
        predicted=_total(predicted),
        worst=float(ratios.max()),
        not_finite=0,
        source_not_finite=0,
    )


def _squares(blocks: np.ndarray) -> np.ndarray:
    """Sum of squares of each block; in the type of the values, since a block is short."""
    return np.einsum("ij,ij->i", blocks, blocks)


def _total(blocks: np.ndarray) -> float:
    return float(blocks.sum(dtype=np.float64))


def _judge(name: str, product: GGUFRows, parts: list[_Sums], findings: Findings) -> Fidelity:
    kind: GGMLQuantizationType = product.header.tensors[name].type
    source, measured, error, predicted = (
        sum(getattr(part, field) for part in parts) for field in ("source", "product", "error", "predicted")
    )
    bad, source_bad = (sum(getattr(part, field) for part in parts) for field in ("not_finite", "source_not_finite"))
    if source_bad:
        findings.add(
            "check.source_not_finite",
            name,
            source_bad,
            0,
            "The published weights hold NaN or infinite values; the checkpoint is damaged.",
        )
    if bad:
        findings.add(
            "check.not_finite",
            name,
            bad,
            0,
            "The product holds NaN or infinite values (F16 ends at 65504); convert as BF16, or fetch again.",
        )
    if bad or source_bad:
        return Fidelity(name, kind.name, None, None, None, None, None, None, bad, source_bad)
    norm = sqrt(source * measured)
    relative = _ratio(error, source)
    explained = _ratio(predicted, source)
    ratio, worst = _ratio(error, predicted), sqrt(max(part.worst for part in parts))
    # |a - b|^2 = |a|^2 + |b|^2 - 2ab: the small error is summed by itself, so the cosine keeps its last digits.
    cosine = 1.0 if error == 0 else (source + measured - error) / 2 / norm if norm else 0.0
    floor = cosine_floor(TENSOR_LIMIT * explained)
    if ratio > TENSOR_LIMIT:
        findings.add(
            "check.tensor_error",
            name,
            _number(relative),
            _number(TENSOR_LIMIT * explained),
            f"The tensor's relative RMS error is {ratio:.2f} times what {kind.name} explains (cosine {cosine:.6f}, "
            f"at least {floor:.6f} expected); it is not this source quantized. Make the product again.",
        )
    elif worst > BLOCK_LIMIT:
        findings.add(
            "check.block_error",
            name,
            _number(worst),
            BLOCK_LIMIT,
            f"One block of the tensor is {worst:.2f} times as far off as {kind.name} explains; a part of it is "
            "damaged. Make the product again.",
        )
    return Fidelity(
        name, kind.name, cosine, floor, _number(relative), _number(explained), _number(ratio), _number(worst), 0, 0
    )


def _ratio(error: float, scale: float) -> float:
    """Root of the quotient; 0 / 0 is 0."""
    if error == 0:
        return 0.0
    return sqrt(error / scale) if scale else float("inf")


def _number(value: float) -> float | None:
    return value if isfinite(value) else None
