"""How a tensor of a container is encoded: told from its label, shape and byte count, or refused by name.

A packed shape does not hold the logical N x K, so the caller gives it (from the config). Source: q4nx.md, sections
2.2 to 2.4 and 3.2 to 3.4. Forms that other bundles used are recognised, so that they are named and never misread.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from draftmill.outcome import Refusal, Refused
from draftmill.q4nx import q4_1, q4_k, q8
from draftmill.q4nx.header import Entry
from draftmill.q4nx.tiles import COLUMNS, ROWS, TileCodec

PACKED = "I8"
SUBTRACTIVE = "Q4NX"


class Kind(StrEnum):
    """`Q8` is Q8 whose code order was not named yet; it is not decoded."""

    Q4_1 = "q4_1"
    Q4_K = "q4_k"
    Q8 = "q8"
    Q8_COLUMN_MAJOR = "q8 column-major"
    Q8_HALF_SPLIT = "q8 half-split"
    BLOCK_BF16 = "block-matrix bf16"
    BF16 = "bf16"
    F32 = "f32"


CODECS: dict[Kind, TileCodec] = {
    Kind.Q4_1: q4_1.CODEC,
    Kind.Q4_K: q4_k.CODEC,
    Kind.Q8_COLUMN_MAJOR: q8.COLUMN_MAJOR,
    Kind.Q8_HALF_SPLIT: q8.HALF_SPLIT,
}
CHUNK_BYTES: dict[Kind, int] = {Kind.Q8: q8.CHUNK_BYTES} | {kind: codec.chunk_bytes for kind, codec in CODECS.items()}
_BY_CHUNK = {q4_1.CHUNK_BYTES: Kind.Q4_1, q4_k.CHUNK_BYTES: Kind.Q4_K, q8.CHUNK_BYTES: Kind.Q8}
_PLAIN_BYTES = {Kind.BF16: 2, Kind.BLOCK_BF16: 2, Kind.F32: 4}

_ADVICE = "download the package again, or pack the draft again"
_FOREIGN_CHUNKS = {
    2560: ("q4nx.legacy_narrow_tiles", "q4_1 in tiles of 32 x 128, as GPT-OSS bundles have them"),
    1280: ("q4nx.legacy_small_chunks", "chunks of 2048 values, a smaller geometry without a published layout"),
    9216: (
        "q4nx.legacy_q8_zero_plane",
        "Q8 with a plane of zeros, which FastFlowLM does not load",
    ),
}


@dataclass(frozen=True)
class Encoding:
    """A matrix of `rows` x `columns` weights in one encoding.

    form: "flat" [tiles, chunk] or "grid" [tile rows, tile columns, chunk] for packed kinds, "" for the others.
    """

    kind: Kind
    rows: int
    columns: int
    form: Literal["flat", "grid", ""] = ""

    @property
    def packed(self) -> bool:
        return self.kind in CHUNK_BYTES

    @property
    def tile_rows(self) -> int:
        return self.rows // ROWS

    @property
    def tile_columns(self) -> int:
        return -(-self.columns // COLUMNS)

    @property
    def stored_columns(self) -> int:
        """Columns with the padding up to a multiple of 256 that packed kinds have."""
        return self.tile_columns * COLUMNS if self.packed else self.columns

    @property
    def padded_columns(self) -> int:
        return self.stored_columns - self.columns

    @property
    def shape(self) -> tuple[int, ...]:
        """As the header declares it."""
        if self.packed:
            chunk = CHUNK_BYTES[self.kind]
            if self.form == "grid":
                return self.tile_rows, self.tile_columns, chunk
            return self.tile_rows * self.tile_columns, chunk
        if self.kind == Kind.BLOCK_BF16:
            return self.tile_rows, self.columns, ROWS
        return self.rows, self.columns

    @property
    def nbytes(self) -> int:
        if self.packed:
            return self.tile_rows * self.tile_columns * CHUNK_BYTES[self.kind]
        return self.rows * self.columns * _PLAIN_BYTES[self.kind]

    @property
    def dtype(self) -> str:
        """The label in the header."""
        return PACKED if self.packed else "F32" if self.kind == Kind.F32 else "BF16"


def classify(entry: Entry, n: int, k: int) -> Encoding:
    """The encoding of a matrix that has n rows (outputs) and k columns (inputs) by its config.

    Raises Refused. Codes: q4nx.legacy_subtractive, legacy_q8_in_q4_frame, legacy_narrow_tiles, legacy_small_chunks,
    legacy_q8_zero_plane, plain_int8, rank_unexpected, chunk_unknown, tile_count, rows_not_whole_tiles,
    dtype_unexpected, shape_unexpected. Two forms share label, shape and size with q4_1: `foreign_content` tells those.
    """
    if entry.dtype in (PACKED, "BF16", "F32") and len(entry.shape) not in (2, 3):
        raise _refused(
            "q4nx.rank_unexpected",
            entry,
            list(entry.shape),
            "[tiles, chunk] or [tile rows, tile columns, chunk]"
            if entry.dtype == PACKED
            else "[N, K] or [N/32, K, 32]",
            f"A matrix is stored with two or three extents and this one has {len(entry.shape)}: {_ADVICE}.",
        )
    if entry.dtype == PACKED:
        return _packed(entry, n, k)
    if entry.dtype == SUBTRACTIVE:
        raise _refused(
            "q4nx.legacy_subtractive",
            entry,
            [entry.dtype, list(entry.shape)],
            PACKED,
            "The label Q4NX marks bundles from before 2026-08-04: scale x (code - zero), another arithmetic in "
            "the same bytes. Use the package's current release.",
        )
    if entry.dtype == "BF16" and len(entry.shape) == 3:
        return _expected(entry, Encoding(Kind.BLOCK_BF16, n, k))
    if entry.dtype in ("BF16", "F32"):
        return _expected(entry, Encoding(Kind(entry.dtype.lower()), n, k))
    raise _refused(
        "q4nx.dtype_unexpected",
        entry,
        entry.dtype[:40],
        [PACKED, "BF16", "F32"],
        f"No known writer stores a matrix under this label, and it is not decoded by guess: {_ADVICE}.",
    )


def with_q8_order(encoding: Encoding, order: Kind) -> Encoding:
    """Q8 with its code order named. Raises ValueError when `order` is no Q8 order; other kinds pass unchanged."""
    if order not in (Kind.Q8_COLUMN_MAJOR, Kind.Q8_HALF_SPLIT):
        raise ValueError(f"{order} is no order of Q8 codes")
    return replace(encoding, kind=order) if encoding.kind == Kind.Q8 else encoding


def foreign_content(encoding: Encoding, data: np.ndarray, where: str) -> Refusal | None:
    """Names the form of bytes that look like q4_1 by label, shape and size, but are not: None when they are.

    An all-zero minimum plane is the tell of signed codes (q4_0 in the q4_1 frame, q4nx.md 3.2); scales repeated in the
    minimum's place of a 128-column tile with its zero tail are the tell of legacy Q8 where k <= 128.
    """
    if encoding.kind != Kind.Q4_1:
        return None
    chunks = data.reshape(-1, q4_1.CHUNK_BYTES)
    twice = encoding.columns <= COLUMNS // 2 and bool((chunks[:, :256] == chunks[:, 256:512]).all())
    if twice and not chunks[:, 4608:].any():
        return Refusal("q4nx.legacy_q8_in_q4_frame", where, "scales stored twice", "q4_1", _Q8_IN_Q4)
    minimums = (part[:, 512:1024].view("<u2") & 0x7FFF for part in np.array_split(chunks, max(1, len(chunks) // 1024)))
    if not any(bits.any() for bits in minimums):
        return Refusal(
            "q4nx.legacy_signed",
            where,
            "every minimum is zero",
            "minimums",
            "The codes are signed (q4_0 in the frame of q4_1, as LFM2 and Qwen2 bundles have them); read as q4_1 they "
            "give wrong weights. Convert the package again as q4_1 or Q4_K.",
        )
    return None


_Q8_IN_Q4 = (
    "These are Q8 tiles of 32 x 128 in a frame of q4_1 size, from an old converter; read as q4_1 they give noise. "
    "Convert the package again."
)


def _packed(entry: Entry, n: int, k: int) -> Encoding:
    if entry.shape == (n, k):
        raise _refused(
            "q4nx.plain_int8",
            entry,
            list(entry.shape),
            "packed tiles",
            "This is a plain 8-bit table with its scales in another tensor, not packed tiles, and drafts have none: "
            f"{_ADVICE}.",
        )
    chunk = entry.shape[-1]
    if chunk in _FOREIGN_CHUNKS:
        code, name = _FOREIGN_CHUNKS[chunk]
        raise _refused(code, entry, chunk, sorted(_BY_CHUNK), f"The tensor is {name}; convert the package again.")
    if chunk not in _BY_CHUNK:
        raise _refused(
            "q4nx.chunk_unknown",
            entry,
            list(entry.shape),
            sorted(_BY_CHUNK),
            "The last extent of a packed tensor is its chunk width, and this one belongs to no known encoding: "
            f"{_ADVICE}.",
        )
    encoding = Encoding(_BY_CHUNK[chunk], n, k, "grid" if len(entry.shape) == 3 else "flat")
    if entry.shape != encoding.shape and n % ROWS == 0 and encoding.kind == Kind.Q4_1:
        narrow = -(-k // (COLUMNS // 2))
        if entry.shape[:-1] in ((encoding.tile_rows * narrow,), (encoding.tile_rows, narrow)):
            raise _refused("q4nx.legacy_q8_in_q4_frame", entry, list(entry.shape), list(encoding.shape), _Q8_IN_Q4)
    return _expected(entry, encoding)


def _expected(entry: Entry, encoding: Encoding) -> Encoding:
    if (encoding.packed or encoding.kind == Kind.BLOCK_BF16) and encoding.rows % ROWS:
        raise _refused(
            "q4nx.rows_not_whole_tiles",
            entry,
            encoding.rows,
            f"a multiple of {ROWS}",
            f"A tiled matrix has a multiple of 32 rows, and the config gives this one another number: {_ADVICE}.",
        )
    if entry.shape == encoding.shape and entry.nbytes == encoding.nbytes:
        return encoding
    if encoding.packed:
        raise _refused(
            "q4nx.tile_count",
            entry,
            list(entry.shape),
            list(encoding.shape),
            f"A matrix of {encoding.rows} x {encoding.columns} takes {encoding.tile_rows} x {encoding.tile_columns} "
            f"tiles of 32 x 256, and is not stored so; config and container disagree: {_ADVICE}.",
        )
    forms = (Kind.BF16, Kind.BLOCK_BF16) if entry.dtype == "BF16" else (encoding.kind,)
    raise _refused(
        "q4nx.shape_unexpected",
        entry,
        list(entry.shape),
        [list(replace(encoding, kind=kind).shape) for kind in forms],
        f"The tensor has no shape that {entry.dtype} of {encoding.rows} x {encoding.columns} has: {_ADVICE}.",
    )


def _refused(code: str, entry: Entry, measured: Any, expected: Any, sentence: str) -> Refused:
    return Refused(Refusal(code, entry.name, measured, expected, sentence))
