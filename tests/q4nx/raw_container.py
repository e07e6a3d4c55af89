"""Containers with any header at all, written byte by byte."""

import json
from pathlib import Path
from typing import Any


def raw(header: dict[str, Any] | bytes, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + body


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [end - begin] if shape is None else shape, "data_offsets": [begin, end]}


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.q4nx"
    path.write_bytes(content)
    return path
