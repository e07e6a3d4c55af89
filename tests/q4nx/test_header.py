"""Headers: what is read, what is refused under which code, and what a stock parser says of the same bytes."""

import json
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from draftmill.outcome import Refused
from draftmill.q4nx.header import HEADER_LIMIT, Header, read_header
from tests.q4nx.raw_container import entry, raw
from tests.support.mutants import mutate


def read(content: bytes) -> Header:
    return read_header(lambda offset, count: content[offset : offset + count], len(content), "model.q4nx")


def refusals(content: bytes) -> list[str]:
    with pytest.raises(Refused) as refused:
        read(content)
    return [refusal.code for refusal in refused.value.refusals]


SOUND = {"a": entry(0, 8), "b": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 16]}}


def changed(**changes: object) -> bytes:
    return raw({"a": entry(0, 8) | changes, "b": entry(8, 16)}, bytes(16))


def test_tensors_are_read_with_absolute_spans() -> None:
    content = raw(SOUND, bytes(16))
    header = read(content)
    start = len(content) - 16
    assert [(e.name, e.dtype, e.shape, e.begin - start, e.end - start) for e in header.tensors.values()] == [
        ("a", "U8", (8,), 0, 8),
        ("b", "BF16", (2, 2), 8, 16),
    ]
    assert (header.gaps, header.trailing, header.padding, header.metadata, header.skipped) == ((), 0, 0, None, ())


BEYOND_STOCK = {
    "a gap between tensors": raw({"a": entry(0, 8), "b": entry(64, 72)}, bytes(72)),
    "a gap before the first": raw({"a": entry(8, 16)}, bytes(16)),
    "the label Q4NX": raw({"a": entry(0, 5120, "Q4NX", [32, 256])}, bytes(5120)),
    "bytes behind the last tensor": raw(SOUND, bytes(17)),
    "metadata that is no text": raw({"__metadata__": {"n": 3}} | SOUND, bytes(16)),
    "an entry that is no object": raw({"note": "hello"} | SOUND, bytes(16)),
    "an entry without data_offsets": raw({"note": {"dtype": "U8"}} | SOUND, bytes(16)),
}
AS_STOCK = {
    "a space-padded header": raw(json.dumps(SOUND).encode() + b"   ", bytes(16)),
    "metadata of text": raw({"__metadata__": {"format": "q4nx"}} | SOUND, bytes(16)),
    "a tensor of rank 0": raw({"a": entry(0, 8, "I64", [])}, bytes(8)),
}


def stock_accepts(content: bytes) -> bool:
    try:
        deserialize(content)
    except SafetensorError:
        return False
    return True


@pytest.mark.parametrize("name", BEYOND_STOCK)
def test_liberties_of_the_format_are_read_where_a_stock_parser_rejects_them(name: str) -> None:
    assert not stock_accepts(BEYOND_STOCK[name])
    assert read(BEYOND_STOCK[name]).tensors


@pytest.mark.parametrize("name", AS_STOCK)
def test_what_a_stock_parser_accepts_is_read(name: str) -> None:
    assert stock_accepts(AS_STOCK[name])
    assert read(AS_STOCK[name]).tensors


def test_liberties_are_recorded() -> None:
    content = raw(
        json.dumps(
            {
                "__metadata__": {"converter": "x", "n": 3},
                "note": [1],
                "rest": {"shape": []},
                "a": entry(64, 72),
                "b": entry(128, 130),
            }
        ).encode()
        + b"  ",
        bytes(140),
    )
    header = read(content)
    start = header.data_offset
    assert header.gaps == ((start, start + 64), (start + 72, start + 128))
    assert (header.trailing, header.padding) == (10, 2)
    assert header.metadata == {"converter": "x", "n": 3}
    assert not header.metadata_text_only
    assert header.skipped == ("note", "rest")


def test_metadata_that_is_no_object_is_skipped_and_named() -> None:
    header = read(raw({"__metadata__": 7} | SOUND, bytes(16)))
    assert header.metadata is None
    assert header.skipped == ("__metadata__",)


DUPLICATE = b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 8)).encode(),) * 2)
CASES = {
    "empty": (b"", "file_short"),
    "seven bytes": (b"\0" * 7, "file_short"),
    "header cut": (raw(SOUND, b"")[:-1], "header_past_end"),
    "header length one past the end": (raw(b"{}", length=3), "header_past_end"),
    "header length that wraps 64 bits": (raw(SOUND, bytes(16), 2**64 - 8), "header_past_end"),
    "header length of all ones": (raw(SOUND, bytes(16), 2**64 - 1), "header_past_end"),
    "git lfs pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 9\n" % (b"0" * 64),
        "lfs_pointer",
    ),
    "a web page": (raw(b"<html></html>"), "header_start"),
    "a list": (raw(b"[]"), "header_start"),
    "no header at all": (raw(b""), "header_start"),
    "broken json": (raw(b'{"a":'), "json_invalid"),
    "not utf-8": (raw(b'{"\xff":1}'), "json_invalid"),
    "two objects": (raw(b"{}{}"), "json_invalid"),
    "NaN": (raw(b'{"a":NaN}'), "json_invalid"),
    "metadata beyond doubles": (raw(b'{"__metadata__":{"n":1e999}}'), "json_invalid"),
    "the same tensor twice": (raw(DUPLICATE, bytes(8)), "json_duplicate_key"),
    "deep nesting": (raw(b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"), "json_too_deep"),
    "deepest nesting": (raw(b'{"a":' * 100_000), "json_too_deep"),
    "unknown key": (changed(scale=0.5), "entry_key_unknown"),
    "no dtype": (raw({"a": {"shape": [8], "data_offsets": [0, 8]}}, bytes(8)), "entry_malformed"),
    "dtype not text": (changed(dtype=8), "entry_malformed"),
    "shape not a list": (changed(shape=8), "entry_malformed"),
    "negative extent": (changed(shape=[-8]), "entry_malformed"),
    "fractional extent": (changed(shape=[8.0]), "entry_malformed"),
    "boolean extent": (changed(shape=[True, 8]), "entry_malformed"),
    "nine dimensions": (changed(shape=[1] * 8 + [8]), "entry_malformed"),
    "one offset": (changed(data_offsets=[0]), "offsets_malformed"),
    "three offsets": (changed(data_offsets=[0, 8, 8]), "offsets_malformed"),
    "offsets null": (changed(data_offsets=None), "offsets_malformed"),
    "offset fractional": (changed(data_offsets=[0, 8.0]), "offsets_malformed"),
    "offset beyond doubles": (raw(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1e999]}}'), "json_invalid"),
    "offset boolean": (changed(data_offsets=[False, 8]), "offsets_malformed"),
    "offset negative": (changed(data_offsets=[-8, 0]), "offsets_negative"),
    "end before begin": (changed(data_offsets=[8, 0]), "offsets_reversed"),
    "end past the file": (raw({"a": entry(0, 9)}, bytes(8)), "body_truncated"),
    "end that wraps 64 bits": (raw({"a": entry(0, 2**64 - 8, "U8", [8])}, bytes(8)), "body_truncated"),
    "shape that overflows": (changed(shape=[2**32, 2**31, 2]), "shape_overflow"),
    "overflow hidden by a zero": (changed(shape=[0, 2**62, 2**62], data_offsets=[0, 0]), "shape_overflow"),
    "more tiles than bytes": (raw({"a": entry(0, 5120, "I8", [2, 5120])}, bytes(5120)), "span_mismatch"),
    "bytes beyond the shape": (changed(shape=[7]), "span_mismatch"),
    "overlap by a byte": (raw({"a": entry(0, 8), "b": entry(7, 16)}, bytes(16)), "tensors_overlap"),
    "the same span twice": (raw({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)), "tensors_overlap"),
    "an overlap behind an empty tensor": (
        raw({"a": entry(0, 16), "b": entry(4, 4), "c": entry(8, 10)}, bytes(16)),
        "tensors_overlap",
    ),
    "one inside another": (
        raw({"a": entry(0, 16), "b": entry(2, 4), "c": entry(16, 18)}, bytes(18)),
        "tensors_overlap",
    ),
}


STRICTER_THAN_STOCK = {"the same tensor twice", "unknown key", "nine dimensions"}


@pytest.mark.parametrize("name", CASES)
def test_each_damage_has_its_own_code(name: str) -> None:
    content, code = CASES[name]
    assert refusals(content) == [f"q4nx.{code}"]
    assert stock_accepts(content) == (name in STRICTER_THAN_STOCK)


def test_a_header_beyond_the_limit_is_not_parsed() -> None:
    length = HEADER_LIMIT + 1
    asked = []

    def read_bytes(offset: int, count: int) -> bytes:
        asked.append(count)
        return struct.pack("<Q", length)[offset : offset + count]

    with pytest.raises(Refused) as refused:
        read_header(read_bytes, 8 + length, "model.q4nx")
    assert refused.value.code == "q4nx.header_too_large"
    assert max(asked) < 100


def test_every_finding_is_told() -> None:
    content = raw({"a": entry(0, 8) | {"shape": [7]}, "b": entry(8, 17), "c": entry(4, 12)}, bytes(16))
    assert refusals(content) == ["q4nx.span_mismatch", "q4nx.body_truncated"]


def test_a_refusal_is_json_even_when_the_header_is_not_sane() -> None:
    with pytest.raises(Refused) as refused:
        read(raw(b'{"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,1]}}', b"\0"))
    json.dumps([refusal.as_json() for refusal in refused.value.refusals], allow_nan=False)


def passes_or_is_refused(content: bytes) -> None:
    try:
        header = read(content)
    except Refused as refused:
        assert all(refusal.code.startswith("q4nx.") for refusal in refused.refusals)
        json.dumps([refusal.as_json() for refusal in refused.refusals], allow_nan=False)
        return
    reached = header.data_offset
    for tensor in header.tensors.values():
        assert tensor.begin >= reached or not tensor.nbytes
        assert header.data_offset <= tensor.begin <= tensor.end <= len(content)
        reached = max(reached, tensor.end)
    holes = sum(end - begin for begin, end in header.gaps)
    assert header.data_offset + holes + sum(e.nbytes for e in header.tensors.values()) + header.trailing == len(content)
    if stock_accepts(content):
        assert {name: list(e.shape) for name, e in header.tensors.items()} == {
            name: stock["shape"] for name, stock in deserialize(content)
        }


def test_four_thousand_damaged_copies_pass_or_are_refused() -> None:
    sound = raw({"__metadata__": {"format": "q4nx"}} | SOUND | {"c": entry(64, 70)}, bytes(80))
    for mutant in mutate(sound, 4000, len(sound) - 80):
        passes_or_is_refused(mutant)


NUMBERS = st.one_of(st.integers(-2, 40), st.integers(2**31 - 2, 2**65), st.floats(), st.booleans(), st.none())
ENTRIES = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "dtype": st.sampled_from(["I8", "BF16", "F32", "Q4NX", "F4", "x", "", 3, None]),
            "shape": st.lists(NUMBERS, max_size=4) | NUMBERS,
            "data_offsets": st.lists(NUMBERS, max_size=3) | NUMBERS,
            "more": NUMBERS,
        },
    ),
    NUMBERS,
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["a", "b", "__metadata__", "\ud800", ""]), ENTRIES), st.binary(max_size=40))
def test_any_header_passes_or_is_refused(header: dict, body: bytes) -> None:
    passes_or_is_refused(raw(json.dumps(header).encode(), body))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_pass_or_are_refused(content: bytes) -> None:
    passes_or_is_refused(content)
