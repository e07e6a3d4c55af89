"""GGUF files put together byte by byte from the specification, so that any part can be wrong."""

import struct
from dataclasses import dataclass, field, replace
from typing import Any

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
F32, F16, Q4_0, Q8_0, Q4_K = 0, 1, 2, 8, 12


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + u32(kind) + value


def array(kind: int, count: int, items: bytes) -> bytes:
    return u32(kind) + u64(count) + items


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    """dims in the file's order: elements of a row first."""
    return text(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


@dataclass(frozen=True)
class RawGGUF:
    """The parts of a file; the counts can claim other numbers than there are."""

    keys: tuple[bytes, ...] = ()
    tensors: tuple[bytes, ...] = ()
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: bytes = u32(3)
    alignment: int = 32
    claimed: dict[str, int] = field(default_factory=dict)

    def but(self, **changes: Any) -> "RawGGUF":
        return replace(self, **changes)

    def to_bytes(self) -> bytes:
        head = self.magic + self.version
        head += u64(self.claimed.get("tensors", len(self.tensors))) + u64(self.claimed.get("keys", len(self.keys)))
        head += b"".join(self.keys) + b"".join(self.tensors)
        return head + bytes(-len(head) % self.alignment) + self.data


SOUND = RawGGUF(
    keys=(
        key("general.architecture", STRING, text("llama")),
        key("general.alignment", UINT32, u32(32)),
        key("llama.block_count", UINT32, u32(1)),
        key("tokenizer.ggml.add_bos_token", BOOL, b"\x01"),
        key("tokenizer.ggml.tokens", ARRAY, array(STRING, 2, text("a") + text("é"))),
    ),
    # 64 F32 are 256 bytes; two rows of 32 Q8_0 are 2 * 34 = 68, padded to 96; 5 F32 are 20, padded to 32.
    tensors=(
        tensor("output_norm.weight", (64,), F32, 0),
        tensor("token_embd.weight", (32, 2), Q8_0, 256),
        tensor("rope_freqs.weight", (5,), F32, 352),
    ),
    data=bytes(384),
)
"""A small file that breaks no rule."""
