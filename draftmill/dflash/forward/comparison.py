"""A device's intermediates against the reference forward's, tensor by tensor and row by row.

A tensor agrees when its relative RMS, sqrt(sum |device - reference|^2 / sum |reference|^2), is at most the tolerance in
every row. A row departs when it is above; the first such row of the first such tensor is where a fault begins.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from draftmill.dflash.forward.arrays import read_array
from draftmill.dflash.forward.trace import Trace
from draftmill.intake.findings import Findings
from draftmill.outcome import Refused

DEFAULT_TOLERANCE = 1e-3
"""Between what float32 in another order gives (1e-6) and what bfloat16 products give (5e-3): a device that computes in
bfloat16 states a wider one."""


@dataclass(frozen=True)
class TensorComparison:
    """largest: max abs difference. cosine: of all values as one vector, None where either is zero throughout.

    departs: the first row above the tolerance, None where there is none. not_finite: values of the dump that are no
    numbers, whose rows depart; largest, relative_rms and cosine are of the other rows.
    """

    name: str
    rows: int
    largest: float
    relative_rms: float
    cosine: float | None
    departs: int | None
    departing_rows: int
    not_finite: int


@dataclass(frozen=True)
class Comparison:
    """tensors: in the order in which a pass computes them. absent: names that the dump does not have."""

    tolerance: float
    tensors: tuple[TensorComparison, ...]
    absent: tuple[str, ...]

    @property
    def first(self) -> TensorComparison | None:
        """The first tensor of the pass that departs."""
        return next((each for each in self.tensors if each.departs is not None), None)

    @property
    def agrees(self) -> bool:
        return self.first is None

    @property
    def sentence(self) -> str:
        if self.first is None:
            return f"agrees: {len(self.tensors)} tensors, every row within {self.tolerance:g} relative RMS"
        return f"departs first at row {self.first.departs} of {self.first.name}, above {self.tolerance:g} relative RMS"

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": "agrees" if self.agrees else "departs",
            "sentence": self.sentence,
            "tolerance": self.tolerance,
            "tensors": [asdict(each) for each in self.tensors],
            "absent": list(self.absent),
        }


def compare(reference: Trace, dump: Mapping[str, np.ndarray], tolerance: float = DEFAULT_TOLERANCE) -> Comparison:
    """dump: arrays of the reference's shapes under its names, any of them left out."""
    return Comparison(
        tolerance,
        tuple(_tensor(name, rows, dump[name], tolerance) for name, rows in reference.items() if name in dump),
        tuple(name for name in reference if name not in dump),
    )


def read_dump(folder: Path, reference: Trace) -> dict[str, np.ndarray]:
    """NAME.npy of a folder, for the names of a trace; each [rows, width], or with heads as further axes.

    Raises Refused with every finding: dflash.dump_unknown, dump_empty, and what `read_array` refuses.
    """
    findings, found = Findings(), {}
    for path in sorted(folder.glob("*.npy")):
        name = path.name.removesuffix(".npy")
        if name not in reference:
            findings.add(
                "dflash.dump_unknown", path.name, name, sorted(reference)[:8],
                "No step of this draft's pass has that name; `draftmill dflash forward --trace DIR` writes them all.",
            )  # fmt: skip
            continue
        try:
            found[name] = read_array(path, path.name, reference[name].shape, finite=False)
        except Refused as refused:
            findings.extend(refused.refusals)
    if not found and not findings:
        findings.add(
            "dflash.dump_empty", str(folder), 0, "NAME.npy files",
            "There is nothing to compare; save the device's rows as NAME.npy, names as --trace writes them.",
        )  # fmt: skip
    findings.raise_if_any()
    return found


def _tensor(name: str, reference: np.ndarray, given: np.ndarray, tolerance: float) -> TensorComparison:
    own, other = reference.astype(np.float64), np.asarray(given, np.float64)
    good = np.isfinite(other).all(axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.sqrt(np.square(other - own).sum(axis=1))
    scale = np.sqrt(np.square(own).sum(axis=1))
    # A row of zeros has no relative measure: anything but zeros departs.
    departing = np.flatnonzero(~(apart <= tolerance * scale))
    mine, theirs = own[good], other[good]
    total, lengths = np.linalg.norm(mine), np.linalg.norm(mine) * np.linalg.norm(theirs)
    difference = float(np.linalg.norm(theirs - mine))
    return TensorComparison(
        name=name,
        rows=len(own),
        largest=float(np.abs(theirs - mine).max(initial=0.0)),
        relative_rms=difference / float(total) if total else (0.0 if difference == 0 else float("inf")),
        cosine=float((mine * theirs).sum() / lengths) if lengths else None,
        departs=int(departing[0]) if len(departing) else None,
        departing_rows=len(departing),
        not_finite=int((~np.isfinite(other)).sum()),
    )
