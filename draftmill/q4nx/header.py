"""Bounded reader of a Q4NX header: which tensors a container holds and where, or why it is refused.

Layout (q4nx.md, section 2.1): 8 bytes little-endian header length N, N bytes JSON, then the tensors' bytes. It is the
safetensors structure with liberties that a safetensors parser rejects: holes between tensors, bytes behind the last,
the dtype label Q4NX, values in `__metadata__` that are not text. Those are facts here, not refusals.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from draftmill.intake.bounded_json import parse_object
from draftmill.intake.findings import Findings
from draftmill.intake.safetensors_header import BITS, LFS_POINTER, MOST_DIMENSIONS
from draftmill.outcome import Refused

HEADER_LIMIT = 8 << 20
"""Bytes. Thirty thousand tensors fit; a hostile header costs a bounded amount of memory."""
LENGTH_BYTES = 8
METADATA = "__metadata__"
_KEYS = frozenset({"dtype", "shape", "data_offsets"})
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Entry:
    """One tensor: dtype label as the file says it, shape as declared, absolute offsets [begin, end) in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Header:
    """What the header says, and the liberties it takes.

    tensors in the order of their bytes; data_offset and all spans are absolute, in bytes; gaps are the holes before
    and between tensors; trailing bytes follow the last tensor; padding counts the spaces behind the JSON; skipped
    names entries that are no objects or have no data_offsets (readers in the field pass over them).
    """

    tensors: dict[str, Entry]
    data_offset: int
    gaps: tuple[tuple[int, int], ...] = ()
    trailing: int = 0
    padding: int = 0
    metadata: dict[str, Any] | None = None
    skipped: tuple[str, ...] = ()
    metadata_text_only: bool = field(default=True)


def read_header(read: Callable[[int, int], bytes], size: int, where: str) -> Header:
    """The header of a container of `size` bytes; `read(offset, count)` gives its bytes.

    Raises Refused with all that is wrong. Codes: q4nx.lfs_pointer, file_short, header_past_end, header_too_large,
    header_start, json_*, entry_malformed, entry_key_unknown, offsets_malformed, offsets_negative, offsets_reversed,
    body_truncated, shape_overflow, span_mismatch, tensors_overlap.
    """
    findings = Findings()
    length = _length(read(0, max(LENGTH_BYTES, len(LFS_POINTER))), size, where, findings)
    findings.raise_if_any()
    raw = read(LENGTH_BYTES, length)
    if raw[:1] != b"{":
        findings.add(
            "q4nx.header_start",
            where,
            raw[:8].hex(),
            "7b ('{')",
            "The header does not begin with a JSON object, so this is not a Q4NX container; fetch the file again.",
        )
        findings.raise_if_any()
    content = _parse(raw, where)
    data_offset = LENGTH_BYTES + length
    metadata = content.pop(METADATA, None)
    tensors, skipped = [], []
    for name, value in content.items():
        if not isinstance(value, dict) or "data_offsets" not in value:
            skipped.append(name)
        elif entry := _entry(name, value, data_offset, size, where, findings):
            tensors.append(entry)
    tensors.sort(key=lambda entry: (entry.begin, entry.end))
    gaps = _gaps(tensors, data_offset, where, findings)
    findings.raise_if_any()
    return Header(
        tensors={entry.name: entry for entry in tensors},
        data_offset=data_offset,
        gaps=gaps,
        trailing=size - max((entry.end for entry in tensors), default=data_offset),
        padding=length - len(raw.rstrip(b" ")),
        metadata=metadata if isinstance(metadata, dict) else None,
        skipped=tuple(skipped if isinstance(metadata, dict | None) else [METADATA, *skipped]),
        metadata_text_only=not isinstance(metadata, dict) or all(isinstance(text, str) for text in metadata.values()),
    )


def _length(start: bytes, size: int, where: str, findings: Findings) -> int:
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if start.startswith(LFS_POINTER):
        findings.add(
            "q4nx.lfs_pointer",
            where,
            size,
            "the file itself",
            "This is a Git LFS pointer, not the container; run `git lfs pull` in the clone, or download from the hub.",
        )
    elif size < LENGTH_BYTES:
        findings.add(
            "q4nx.file_short",
            where,
            size,
            LENGTH_BYTES,
            "The file is too short to hold a header; the download was cut short. Fetch it again.",
        )
    elif LENGTH_BYTES + length > size:
        findings.add(
            "q4nx.header_past_end",
            where,
            length,
            size - LENGTH_BYTES,
            "The header would end behind the end of the file; it was cut short or is no container. Fetch it again.",
        )
    elif length > HEADER_LIMIT:
        findings.add(
            "q4nx.header_too_large",
            where,
            length,
            HEADER_LIMIT,
            "No container needs a header of this size; the file is damaged or another one. Fetch it again.",
        )
    return length


def _parse(raw: bytes, where: str) -> dict[str, Any]:
    try:
        return parse_object(raw, where)
    except Refused as error:
        # The codes of this package carry its own name; the finding is the JSON reader's.
        raise Refused(*(replace(r, code=r.code.replace("intake.", "q4nx.", 1)) for r in error.refusals)) from None


def _natural(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _shown(value: Any) -> str:
    return repr(value)[:120]


def _entry(name: str, value: dict[str, Any], base: int, size: int, file: str, findings: Findings) -> Entry | None:
    where = f"{file}:{name}"
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value["data_offsets"]
    if unknown := sorted(value.keys() - _KEYS):
        findings.add(
            "q4nx.entry_key_unknown",
            where,
            _shown(unknown[:8]),
            sorted(_KEYS),
            "The tensor's entry has a key that no known writer makes and that may change its meaning; "
            "ask its author what it says, or write the container again without it.",
        )
        return None
    if not (
        isinstance(dtype, str)
        and isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(map(_natural, shape))
    ):
        findings.add(
            "q4nx.entry_malformed",
            where,
            _shown({"dtype": dtype, "shape": shape}),
            f"a dtype label, and a shape of at most {MOST_DIMENSIONS} natural numbers below 2^63",
            "The tensor's entry is not of the format's form; write the container again.",
        )
        return None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
        findings.add(
            "q4nx.offsets_malformed",
            where,
            _shown(offsets),
            "two whole numbers [begin, end]",
            "The tensor's data_offsets do not say where it lies; write the container again.",
        )
        return None
    begin, end = offsets
    if begin < 0 or end < 0:
        findings.add(
            "q4nx.offsets_negative",
            where,
            _shown(offsets),
            "begin >= 0",
            "The tensor would lie before the data; the header is damaged. Fetch the file again.",
        )
        return None
    if end < begin:
        findings.add(
            "q4nx.offsets_reversed",
            where,
            _shown(offsets),
            "begin <= end",
            "The tensor ends before it begins; the header is damaged. Fetch the file again.",
        )
        return None
    if base + end > size:
        findings.add(
            "q4nx.body_truncated",
            where,
            size - base,
            end if end <= _LARGEST else _shown(end),
            "The tensor would end behind the end of the file; the download was cut short. Fetch it again.",
        )
        return None
    return _spanned(Entry(name, dtype, tuple(shape), base + begin, base + end), where, findings)


def _spanned(entry: Entry, where: str, findings: Findings) -> Entry | None:
    """The entry, when shape and bytes agree; labels of no known width (Q4NX among them) are left to `classify`."""
    bits = BITS.get(entry.dtype, 0)
    # A zero extent must not hide the overflow of the others.
    if (bits or 1) * math.prod(extent or 1 for extent in entry.shape) > _LARGEST:
        findings.add(
            "q4nx.shape_overflow",
            where,
            _shown(entry.shape),
            "a size below 2^63 bits",
            "The shape's product does not fit 64 bits; no such tensor exists. Do not trust this file.",
        )
        return None
    expected = bits * math.prod(entry.shape)
    if bits and expected != entry.nbytes * 8:
        findings.add(
            "q4nx.span_mismatch",
            where,
            entry.nbytes,
            expected / 8 if expected % 8 else expected // 8,
            f"Shape {list(entry.shape)} of {entry.dtype} does not take the {entry.nbytes} bytes that the offsets "
            "span; write the container again.",
        )
        return None
    return entry


def _gaps(tensors: list[Entry], data_offset: int, where: str, findings: Findings) -> tuple[tuple[int, int], ...]:
    gaps = []
    reached, before = data_offset, "the header"
    for entry in tensors:
        if entry.begin > reached:
            gaps.append((reached, entry.begin))
        elif entry.begin < reached and entry.nbytes:
            findings.add(
                "q4nx.tensors_overlap",
                f"{where}:{entry.name}",
                entry.begin,
                reached,
                f"The tensor begins inside the bytes of {before}; tensors may not share bytes. Do not trust this file.",
            )
        if entry.end > reached:
            reached, before = entry.end, entry.name
    return tuple(gaps)
