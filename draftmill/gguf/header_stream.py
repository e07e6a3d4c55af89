"""The values of a GGUF header, read one after another from mapped bytes and never beyond what is there."""

import mmap
import struct
from typing import Any

import numpy as np
from gguf.constants import GGUFValueType

from draftmill.outcome import Refusal, Refused

METADATA_LIMIT = 128 << 20
"""Bytes of keys and values; a vocabulary of a million tokens with its merges takes about 50 MB."""
DEEPEST_ARRAY = 4
LARGEST = 2**63 - 1

_T = GGUFValueType
_CODES = {
    _T.UINT8: "B", _T.INT8: "b", _T.UINT16: "H", _T.INT16: "h", _T.UINT32: "I", _T.INT32: "i",
    _T.FLOAT32: "f", _T.BOOL: "B", _T.UINT64: "Q", _T.INT64: "q", _T.FLOAT64: "d",
}  # fmt: skip
"""Scalar types; with "<" before it the code means the same to struct and to NumPy."""

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
_FORMS = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}
_LEAST_BYTES = {**{kind: form.size for kind, form in _FORMS.items()}, _T.STRING: 8, _T.ARRAY: 12}


class HeaderStream:
    """A position in the mapped file; every method moves it or refuses."""

    def __init__(self, data: mmap.mmap, size: int, name: str) -> None:
        self.data = data
        self.size = size
        self.limit = METADATA_LIMIT
        self.at = 0
        self.name = name
        self.place = "the header"

    def refused(self, code: str, measured: Any, expected: Any, sentence: str) -> Refused:
        return Refused(Refusal(code, f"{self.name}: {self.place}", measured, expected, sentence))

    def take(self, form: struct.Struct) -> Any:
        if self.at + form.size > self.size:
            raise self.refused(
                "gguf.header_truncated",
                self.size,
                f"{form.size} more bytes at offset {self.at}",
                "The file ends inside its header; it was cut short. Fetch or make it again.",
            )
        (value,) = form.unpack_from(self.data, self.at)
        self.skip(form.size)
        return value

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > self.limit:
            raise self.refused(
                "gguf.metadata_too_large",
                self.at,
                self.limit,
                "Keys and values take more bytes than any real vocabulary needs; do not trust this file.",
            )

    def text(self, code: str = "gguf.string_too_long", limit: int = LARGEST) -> str:
        length = self.take(U64)
        most = min(limit, self.size - self.at)
        if length > most:
            raise self.refused(
                code,
                length,
                f"at most {most}",
                "A text claims more bytes than it may have or the file holds; the file is damaged. Fetch it again.",
            )
        self.skip(length)
        raw = self.data[self.at - length : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.refused(
                "gguf.text_not_utf8",
                raw[max(0, error.start - 4) : error.start + 8].hex(),
                "UTF-8",
                "A text is not UTF-8, and readers disagree what it says; convert the model again.",
            ) from None

    def value(self, kind: int, depth: int = 0) -> tuple[Any, tuple[GGUFValueType, ...]]:
        if kind == _T.STRING:
            return self.text(), (_T.STRING,)
        if kind == _T.ARRAY:
            return self.array(depth + 1)
        if kind not in _FORMS:
            raise self.refused(
                "gguf.value_type_unknown",
                kind,
                [int(known) for known in _T],
                "The value's type is not one of GGUF 2 or 3; the file is damaged or newer than this. Convert it again.",
            )
        value = self.take(_FORMS[_T(kind)])
        if kind == _T.BOOL:
            if value > 1:
                raise self.not_a_bool(value)
            value = bool(value)
        return value, (_T(kind),)

    def array(self, depth: int) -> tuple[list[Any], tuple[GGUFValueType, ...]]:
        if depth > DEEPEST_ARRAY:
            raise self.refused(
                "gguf.array_too_deep",
                depth,
                DEEPEST_ARRAY,
                "Arrays are nested deeper than any real file needs; do not trust this file.",
            )
        kind, count = self.take(U32), self.take(U64)
        least = _LEAST_BYTES.get(kind, 1)
        if count > (self.size - self.at) // least:
            raise self.refused(
                "gguf.array_too_long",
                count,
                f"at most {(self.size - self.at) // least}",
                "An array claims more elements than the file has bytes left; the file is damaged. Fetch it again.",
            )
        if kind in _CODES:
            self.skip(count * least)
            values = np.frombuffer(self.data[self.at - count * least : self.at], "<" + _CODES[_T(kind)])
            if kind == _T.BOOL:
                if count and values.max() > 1:
                    raise self.not_a_bool(int(values.max()))
                values = values.astype(bool)
            return values.tolist(), (_T.ARRAY, _T(kind))
        if kind == _T.STRING:
            return self.texts(count), (_T.ARRAY, _T.STRING)
        if kind != _T.ARRAY:
            self.value(kind)
        items = [self.value(kind, depth) for _ in range(count)]
        inner = items[0][1] if items else (_T.ARRAY,)
        return [value for value, _ in items], (_T.ARRAY, *inner)

    def texts(self, count: int) -> list[str]:
        """What `text` gives, `count` times: vocabularies are long, so the sound case has no calls in it."""
        data, at, size, unpack = self.data, self.at, min(self.size, self.limit), U64.unpack_from
        texts: list[str] = []
        try:
            while len(texts) < count and at + 8 <= size:
                end = at + 8 + unpack(data, at)[0]
                if end > size:
                    break
                texts.append(str(data[at + 8 : end], "utf-8"))
                at = end
        except UnicodeDecodeError:
            pass
        self.at = at
        return texts + [self.text() for _ in range(count - len(texts))]

    def not_a_bool(self, value: int) -> Refused:
        return self.refused(
            "gguf.bool_invalid",
            value,
            "0 or 1",
            "A truth value is not 0 or 1; the file is damaged. Fetch it again.",
        )

    def count(self, what: str, least: int) -> int:
        """A number of things that take at least `least` bytes each."""
        count = self.take(U64)
        if count > (self.size - self.at) // least:
            raise self.refused(
                f"gguf.{what}_count",
                count,
                f"at most {(self.size - self.at) // least}",
                f"The header claims more {what}s than the file has room for; the file is damaged. Fetch it again.",
            )
        return int(count)
