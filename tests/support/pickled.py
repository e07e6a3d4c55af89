"""Writes the archives that torch.save writes, opcode by opcode, without torch; and pickles it would never write."""

import math
import struct
import zipfile
from pathlib import Path

ITEM_BYTES = {"BFloat16Storage": 2, "HalfStorage": 2, "FloatStorage": 4}


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _tuple(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(_number, values)) + b"t"


def name(module: str, attribute: str) -> bytes:
    """The opcode that imports module.attribute."""
    return f"c{module}\n{attribute}\n".encode()


def tensor(storage: str, key: str, shape: tuple[int, ...], count: int | None = None) -> bytes:
    """A call of torch._utils._rebuild_tensor_v2 on storage `key` of `count` elements, contiguous."""
    stride = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    where = b"(" + _text("storage") + name("torch", storage) + _text(key) + _text("cpu")
    where += _number(math.prod(shape) if count is None else count) + b"tQ"
    hooks = name("collections", "OrderedDict") + b")R"
    arguments = b"(" + where + _number(0) + _tuple(shape) + _tuple(stride) + b"\x89" + hooks + b"t"
    return name("torch._utils", "_rebuild_tensor_v2") + arguments + b"R"


def dictionary(items: dict[str, bytes]) -> bytes:
    """A whole pickle of protocol 2: a dictionary whose values are given as opcodes."""
    return b"\x80\x02}(" + b"".join(_text(key) + value for key, value in items.items()) + b"u."


def write_archive(path: Path, pickle: bytes, data: dict[str, bytes], extra: dict[str, bytes] | None = None) -> None:
    """torch's zip form: <stem>/data.pkl, <stem>/data/<key> and so on; `extra` adds files by their full names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle)
        archive.writestr(f"{path.stem}/byteorder", "little")
        for key, content in data.items():
            archive.writestr(f"{path.stem}/data/{key}", content)
        archive.writestr(f"{path.stem}/version", "3\n")
        for full_name, content in (extra or {}).items():
            archive.writestr(full_name, content)


def write_tensors(path: Path, shapes: dict[str, tuple[int, ...]], storage: str = "BFloat16Storage") -> None:
    """A dictionary of zero tensors, each with its own storage."""
    items = {key: tensor(storage, str(number), shape) for number, (key, shape) in enumerate(shapes.items())}
    data = {str(k): bytes(math.prod(shape) * ITEM_BYTES[storage]) for k, shape in enumerate(shapes.values())}
    write_archive(path, dictionary(items), data)


def write_legacy(path: Path, shapes: dict[str, tuple[int, ...]], storage: str = "BFloat16Storage") -> None:
    """torch's older form: five pickles, then each storage as its count and its bytes."""

    def value(content: bytes) -> bytes:
        return b"\x80\x02" + content + b"."

    items = {key: tensor(storage, str(number), shape) for number, (key, shape) in enumerate(shapes.items())}
    keys = b"](" + b"".join(_text(str(number)) for number in range(len(shapes))) + b"e"
    magic, protocol, system = value(b"\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19"), value(b"M\xe9\x03"), value(b"}")
    head = magic + protocol + system + dictionary(items) + value(keys)
    body = b"".join(
        struct.pack("<q", math.prod(shape)) + bytes(math.prod(shape) * ITEM_BYTES[storage]) for shape in shapes.values()
    )
    path.write_bytes(head + body)
