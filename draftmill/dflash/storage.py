"""How each role's tensor may lie in a file: the accepted encodings of a container, the plain ones of a checkpoint.

Generation 1 packs projections as q4_1 and keeps fc as a BF16 block matrix; in generation 2 every matrix is Q4_K
(seed page; q4nx.md sections 6.2, 7.2). Where the encoding is not established (codebooks, norms and base kernels of
generation 2) each documented one is accepted. Q4_K projections in generation 1 are accepted and recorded: the vendor
writes Q4_K since version 1.0.2, though no such draft is published. So are matrices that are all BF16 block matrices,
a layout that the vendor has for other weights (q4nx.md section 2.4): the form of weights that shall stay what they are.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from draftmill.dflash.config import DraftConfig
from draftmill.dflash.geometry import Geometry
from draftmill.dflash.inventory import Expected, Matched, Role, Variant, expected_tensors
from draftmill.intake.findings import Findings
from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Encoding, Kind, classify
from draftmill.q4nx.header import Entry
from draftmill.q4nx.matrix import decode
from draftmill.q4nx.tiles import from_bf16

MATRICES: dict[int, dict[Role, tuple[Kind, ...]]] = {
    1: {Role.PROJECTION: (Kind.Q4_1, Kind.Q4_K, Kind.BLOCK_BF16), Role.FUSION: (Kind.BLOCK_BF16,)},
    2: {
        Role.PROJECTION: (Kind.Q4_K, Kind.BLOCK_BF16),
        Role.FUSION: (Kind.Q4_K, Kind.BLOCK_BF16),
        Role.CONV_PROJECTION: (Kind.Q4_K, Kind.BLOCK_BF16),
        Role.SELECTOR: (Kind.Q4_K, Kind.BLOCK_BF16),
        Role.CODEBOOK: (Kind.Q4_K, Kind.BF16),
    },
}
"""Generation -> role -> accepted encodings; the first is the published one, where one is."""
PUBLISHED: dict[int, Kind] = {generation: roles[Role.PROJECTION][0] for generation, roles in MATRICES.items()}
"""Generation -> the encoding of projections in published packages."""
SMALL: dict[int, tuple[Kind, ...]] = {1: (Kind.BF16,), 2: (Kind.BF16, Kind.F32)}
"""Of norms and base kernels, which are stored as they are."""
UNIFORM = (Role.PROJECTION, Role.FUSION, Role.CONV_PROJECTION, Role.SELECTOR)
"""Roles whose tensors share one encoding in a package, where they have a choice."""


@dataclass(frozen=True)
class Located:
    """A tensor in a container. encoding: of a matrix, None for norms, base kernels and scalars."""

    expected: Expected
    entry: Entry
    encoding: Encoding | None = None

    def decode(self, data: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """float32 of the logical shape; data: the stored bytes, uint8. Raises ValueError for a scalar."""
        if self.encoding:
            return decode(self.encoding, data, out)
        if self.expected.role == Role.SCALAR:
            raise ValueError(f"{self.expected.name} is a scalar: read_scalar reads it")
        values = data.view("<f4") if self.entry.dtype == "F32" else from_bf16(data.view("<u2"))
        return values.reshape(self.expected.shape)


@dataclass(frozen=True)
class Inventory:
    """by_name: the mill's name -> where and how it is stored; only tensors whose form was accepted."""

    by_name: dict[str, Located]
    variants: tuple[Variant, ...]


def locate(
    config: DraftConfig | Geometry, matched: Matched, entries: Mapping[str, Entry], where: str, findings: Findings
) -> Inventory:
    """How each found tensor is stored in a container; what the config gives no size is left out.

    Codes: those of `q4nx.encodings.classify`, and dflash.encoding_unexpected, dtype_unexpected, shape_unexpected,
    encodings_mixed. Scalars are taken as they are: `read_scalar` judges them.
    """
    found: dict[str, Located] = {}
    for expected in expected_tensors(config, scalars=True):
        if expected.name not in matched.found or not (expected.sized or expected.role == Role.SCALAR):
            continue
        entry = entries[matched.found[expected.name]]
        try:
            if located := _located(config.generation, expected, entry, f"{where}:{entry.name}", findings):
                found[expected.name] = located
        except Refused as refused:
            findings.extend([replace(refusal, where=f"{where}:{entry.name}") for refusal in refused.refusals])
    kinds = Counter(
        (located.expected.role.value, located.encoding.kind.value if located.encoding else located.entry.dtype)
        for located in found.values()
    )
    forms = Counter(located.encoding.form for located in found.values() if located.encoding and located.encoding.form)
    met = {
        located.encoding.kind
        for located in found.values()
        if located.encoding
        and located.expected.role in UNIFORM
        and len(MATRICES[config.generation][located.expected.role]) > 1
    }
    if len(met) > 1:
        findings.add(
            "dflash.encodings_mixed",
            where,
            sorted(met),
            "one encoding",
            "Projections are stored in different encodings, which no published draft does; pack the draft again.",
        )
    variants = [Variant(role, kind, count) for (role, kind), count in sorted(kinds.items())]
    variants += [Variant("tile order", form, count) for form, count in sorted(forms.items())]
    return Inventory(found, (*matched.variants, *variants))


def _located(generation: int, expected: Expected, entry: Entry, where: str, findings: Findings) -> Located | None:
    if expected.role == Role.SCALAR:
        return Located(expected, entry)
    if expected.role in (Role.NORM, Role.CONV_KERNEL):
        accepted = [kind.upper() for kind in SMALL[generation]]
        if entry.dtype not in accepted:
            findings.add(
                "dflash.dtype_unexpected",
                where,
                entry.dtype[:40],
                accepted,
                f"A {expected.role} of generation {generation} has another label; the container is not of a known "
                "writer. Pack the draft again.",
            )
        elif entry.shape != expected.shape:
            findings.add(
                "dflash.shape_unexpected",
                where,
                list(entry.shape),
                list(expected.shape),
                f"The {expected.role} has another shape than the config gives it; config and container disagree. "
                "Download the package again.",
            )
        else:
            return Located(expected, entry)
        return None
    encoding = classify(entry, *expected.shape)
    kinds = MATRICES[generation][expected.role]
    if encoding.kind not in kinds:
        findings.add(
            "dflash.encoding_unexpected",
            where,
            encoding.kind.value,
            [kind.value for kind in kinds],
            f"A {expected.role} of generation {generation} is stored in another encoding; engines read it as the "
            "expected one. Pack the draft again.",
        )
        return None
    return Located(expected, entry, encoding)
