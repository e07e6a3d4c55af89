"""Malformed GGUF files: each a sound file with one thing wrong, and the one code it deserves."""

from dataclasses import dataclass

from tests.support import raw_gguf as g
from tests.support.malformed import POINTER
from tests.support.raw_gguf import SOUND, RawGGUF


@dataclass(frozen=True)
class GGUFCase:
    name: str
    code: str
    place: str
    content: bytes


def _with_key(raw: bytes) -> bytes:
    return SOUND.but(keys=(*SOUND.keys, raw)).to_bytes()


def _with_tensors(*tensors: bytes, data: bytes = bytes(384)) -> bytes:
    return SOUND.but(tensors=tensors, data=data).to_bytes()


def _with_alignment(kind: int, value: bytes) -> bytes:
    return SOUND.but(keys=(g.key("general.alignment", kind, value),)).to_bytes()


def _first(name: str, dims: tuple[int, ...], kind: int = g.F32) -> bytes:
    """The sound tensors, the first replaced."""
    return _with_tensors(g.tensor(name, dims, kind, 0), _SECOND, _THIRD)


_FIRST, _SECOND, _THIRD = SOUND.tensors
HANGS = RawGGUF(keys=(g.key("a", g.ARRAY, g.array(g.UINT8, 1 << 62, b"")),), alignment=1).to_bytes()
"""49 bytes: one array that claims 2^62 elements; the reader of gguf 0.19.0 loops over them."""

GGUFS = [
    GGUFCase("empty file", "gguf.file_empty", "", b""),
    GGUFCase("Git LFS pointer", "gguf.lfs_pointer", "", POINTER),
    GGUFCase("another format", "gguf.not_gguf", "", SOUND.but(magic=b"GGML").to_bytes()),
    GGUFCase("three bytes", "gguf.not_gguf", "", b"GGU"),
    GGUFCase("version 1", "gguf.version_unknown", "", SOUND.but(version=g.u32(1)).to_bytes()),
    GGUFCase("version 4", "gguf.version_unknown", "", SOUND.but(version=g.u32(4)).to_bytes()),
    GGUFCase("big-endian", "gguf.big_endian", "", SOUND.but(version=b"\0\0\0\x03").to_bytes()),
    GGUFCase("ends after the version", "gguf.header_truncated", "", SOUND.to_bytes()[:8]),
    GGUFCase("ends inside a tensor's entry", "gguf.header_truncated", "rope_freqs",
        SOUND.but(data=b"", alignment=1).to_bytes()[:-4],
    ),
    GGUFCase("2^63 tensors", "gguf.tensor_count", "", SOUND.but(claimed={"tensors": 1 << 63}).to_bytes()),
    GGUFCase("2^63 keys", "gguf.key_count", "", SOUND.but(claimed={"keys": 1 << 63}).to_bytes()),
    GGUFCase("key of 65536 bytes", "gguf.key_too_long", "key 5", _with_key(g.key("k" * 65536, g.UINT8, b"\0"))),
    GGUFCase("key without a name", "gguf.key_empty", "key", _with_key(g.key("", g.UINT8, b"\0"))),
    GGUFCase("key twice", "gguf.key_twice", "llama.block_count", _with_key(SOUND.keys[2])),
    GGUFCase("key not UTF-8", "gguf.text_not_utf8", "key 5", _with_key(g.key(b"\xff", g.UINT8, b"\0"))),
    GGUFCase("token not UTF-8", "gguf.text_not_utf8", "a.b",
        _with_key(g.key("a.b", g.ARRAY, g.array(g.STRING, 1, g.text(b"\xc3")))),
    ),
    GGUFCase("text of 2^62 bytes", "gguf.string_too_long", "a.b", _with_key(g.key("a.b", g.STRING, g.u64(1 << 62)))),
    GGUFCase("the 49 bytes that hang", "gguf.array_too_long", "'a'", HANGS),
    GGUFCase("array one element too long", "gguf.array_too_long", "'a'",
        RawGGUF(keys=(g.key("a", g.ARRAY, g.array(g.UINT64, 2, g.u64(0))),), alignment=1).to_bytes(),
    ),
    GGUFCase("array of 2^61 texts", "gguf.array_too_long", "a.b",
        _with_key(g.key("a.b", g.ARRAY, g.array(g.STRING, 1 << 61, b""))),
    ),
    GGUFCase(
        "arrays in arrays in arrays", "gguf.array_too_deep", "a.b",
        _with_key(g.key("a.b", g.ARRAY, g.array(g.ARRAY, 1, b"") * 200 + g.array(g.UINT8, 0, b""))),
    ),
    GGUFCase("value of type 13", "gguf.value_type_unknown", "a.b", _with_key(g.key("a.b", 13, b"\0" * 8))),
    GGUFCase("array of type 99", "gguf.value_type_unknown", "a.b",
        _with_key(g.key("a.b", g.ARRAY, g.array(99, 0, b""))),
    ),
    GGUFCase("truth value 2", "gguf.bool_invalid", "a.b", _with_key(g.key("a.b", g.BOOL, b"\x02"))),
    GGUFCase("truth value 2 in an array", "gguf.bool_invalid", "a.b",
        _with_key(g.key("a.b", g.ARRAY, g.array(g.BOOL, 2, b"\x01\x02"))),
    ),
    GGUFCase("alignment 0", "gguf.alignment_invalid", "general.alignment", _with_alignment(g.UINT32, g.u32(0))),
    GGUFCase("alignment 24", "gguf.alignment_invalid", "general.alignment", _with_alignment(g.UINT32, g.u32(24))),
    GGUFCase("alignment a text", "gguf.alignment_invalid", "general.alignment",
        _with_alignment(g.STRING, g.text("32")),
    ),
    GGUFCase("tensor name of 64 bytes", "gguf.tensor_name_too_long", "tensor 0", _first("n" * 64, (64,))),
    GGUFCase("tensor without a name", "gguf.tensor_name_empty", "tensor", _first("", (64,))),
    GGUFCase("tensor name twice", "gguf.tensor_name_twice", "output_norm",
        _with_tensors(_FIRST, g.tensor("output_norm.weight", (32, 2), g.Q8_0, 256), _THIRD),
    ),
    GGUFCase("five dimensions", "gguf.dimensions_too_many", "output_norm",
        _first("output_norm.weight", (4, 4, 4, 1, 1)),
    ),
    GGUFCase("extent 0", "gguf.shape_invalid", "output_norm", _first("output_norm.weight", (0,))),
    GGUFCase("2^64 elements", "gguf.shape_invalid", "output_norm", _first("output_norm.weight", (1 << 32, 1 << 32))),
    GGUFCase("a type that was removed", "gguf.tensor_type_unknown", "output_norm",
        _first("output_norm.weight", (64,), 4),
    ),
    GGUFCase("row of 33 in blocks of 32", "gguf.row_not_blocks", "token_embd",
        _with_tensors(_FIRST, g.tensor("token_embd.weight", (33, 32), g.Q8_0, 256), _THIRD),
    ),
    GGUFCase("offset 260", "gguf.offset_unaligned", "token_embd",
        _with_tensors(_FIRST, g.tensor("token_embd.weight", (32, 2), g.Q8_0, 260), _THIRD),
    ),
    GGUFCase("second tensor first", "gguf.offset_order", "token_embd",
        _with_tensors(_FIRST, g.tensor("x", (8,), g.F32, 256), g.tensor("token_embd.weight", (8,), g.F32, 0)),
    ),
    GGUFCase("tensors share bytes", "gguf.tensors_overlap", "token_embd",
        _with_tensors(_FIRST, g.tensor("token_embd.weight", (32, 2), g.Q8_0, 224)),
    ),
    GGUFCase("bytes between tensors", "gguf.data_hole", "rope_freqs",
        _with_tensors(_FIRST, _SECOND, g.tensor("rope_freqs.weight", (5,), g.F32, 384), data=bytes(416)),
    ),
    GGUFCase("offset of 2^63", "gguf.data_hole", "rope_freqs",
        _with_tensors(_FIRST, _SECOND, g.tensor("rope_freqs.weight", (5,), g.F32, 1 << 63)),
    ),
    GGUFCase("data cut short", "gguf.data_truncated", "the data", SOUND.but(data=bytes(371)).to_bytes()),
    GGUFCase("tensor of 2^40 bytes", "gguf.data_truncated", "the data",
        _with_tensors(_FIRST, _SECOND, g.tensor("rope_freqs.weight", (1 << 38,), g.F32, 352)),
    ),
    GGUFCase("bytes after the data", "gguf.data_trailing", "the data", SOUND.but(data=bytes(385)).to_bytes()),
]  # fmt: skip
