"""The bounded GGUF header reader against gguf's own reader, against hand-made files and against damaged ones."""

import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from draftmill.gguf.header import GGUFTensor, map_tensor, read_header
from draftmill.gguf.header_stream import METADATA_LIMIT
from draftmill.outcome import Refused
from tests.support import raw_gguf as g
from tests.support.inputs import smollm2_gguf
from tests.support.malformed_gguf import HANGS
from tests.support.mutants import mutate
from tests.support.raw_gguf import SOUND, RawGGUF
from tests.support.waiting import little_work


def put(folder: Path, content: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(content)
    return path


def assert_agrees_with_gguf(path: Path) -> None:
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert list(ours.fields) == list(fields)
    for name, field in fields.items():
        assert ours.fields[name] == field.contents(), name
        assert ours.types[name] == tuple(field.types), name
    assert (ours.alignment, ours.data_offset) == (theirs.alignment, theirs.data_offset)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        assert ours.tensors[tensor.name] == GGUFTensor(
            tensor.name, tuple(tensor.shape.tolist()[::-1]), tensor.tensor_type, tensor.data_offset, tensor.n_bytes
        )
        assert np.array_equal(map_tensor(path, ours.tensors[tensor.name]), tensor.data.view(np.uint8).ravel())


def test_reads_a_real_model_as_gguf_does() -> None:
    assert_agrees_with_gguf(smollm2_gguf())


def test_reads_every_value_type_as_gguf_does(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_uint8("a.u8", 255)
    writer.add_int8("a.i8", -128)
    writer.add_uint16("a.u16", 65535)
    writer.add_int16("a.i16", -32768)
    writer.add_uint32("a.u32", 2**32 - 1)
    writer.add_int32("a.i32", -(2**31))
    writer.add_uint64("a.u64", 2**64 - 1)
    writer.add_int64("a.i64", -(2**63))
    writer.add_float32("a.f32", 0.1)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.yes", True)
    writer.add_bool("a.no", False)
    writer.add_string("a.text", "žluťoučký 🐎")
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, 0.25])
    writer.add_array("a.bools", [True, False])
    writer.add_array("a.texts", ["", "b", "世界"])
    writer.add_tensor("one", np.arange(10, dtype=np.float32).reshape(2, 5))
    writer.add_tensor("two", np.arange(3, dtype=np.float16))
    writer.add_tensor("three", np.zeros((2, 34), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_agrees_with_gguf(path)


def test_reads_a_file_put_together_by_hand(tmp_path: Path) -> None:
    header = read_header(put(tmp_path, SOUND.to_bytes()))
    assert header.fields["tokenizer.ggml.tokens"] == ["a", "é"]
    assert header.fields["tokenizer.ggml.add_bos_token"] is True
    norm, embedding, ropes = header.tensors.values()
    assert (norm.shape, norm.nbytes, norm.offset - header.data_offset) == ((64,), 256, 0)
    assert (embedding.shape, embedding.nbytes, embedding.offset - header.data_offset) == ((2, 32), 68, 256)
    assert (ropes.shape, ropes.nbytes, ropes.offset - header.data_offset) == ((5,), 20, 352)
    assert header.size == header.data_offset + 384


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"version": g.u32(2)}, "version 2"),
        ({"data": bytes(372)}, "the last tensor not padded"),
        ({"keys": (), "tensors": (), "data": b""}, "nothing at all"),
        ({"keys": (), "tensors": (), "data": b"", "alignment": 1}, "nothing at all, not padded"),
    ],
)
def test_accepts_what_is_unusual_but_sound(tmp_path: Path, change: dict, what: str) -> None:
    assert read_header(put(tmp_path, SOUND.but(**change).to_bytes())), what


def test_reads_arrays_of_arrays(tmp_path: Path) -> None:
    inner = g.array(g.UINT8, 2, b"\x01\x02") + g.array(g.UINT8, 1, b"\x03")
    path = put(tmp_path, RawGGUF(keys=(g.key("a.b", g.ARRAY, g.array(g.ARRAY, 2, inner)),)).to_bytes())
    assert read_header(path).fields == {"a.b": [[1, 2], [3]]}


def test_a_key_in_an_odd_style_is_a_warning_only(tmp_path: Path) -> None:
    path = put(tmp_path, RawGGUF(keys=(g.key("Some-Key", g.UINT8, b"\0"),)).to_bytes())
    assert "Some-Key" in read_header(path).warnings[0]
    assert read_header(put(tmp_path, SOUND.to_bytes())).warnings == ()


def test_lists_every_tensor_that_is_wrong(tmp_path: Path) -> None:
    wrong = (g.tensor("a", (0,), g.F32, 0), g.tensor("b", (64,), 99, 0), g.tensor("c", (33,), g.Q8_0, 0))
    with pytest.raises(Refused) as caught:
        read_header(put(tmp_path, SOUND.but(tensors=wrong).to_bytes()))
    assert [refusal.code for refusal in caught.value.refusals] == [
        "gguf.shape_invalid",
        "gguf.tensor_type_unknown",
        "gguf.row_not_blocks",
    ]


def test_a_claimed_length_does_not_hang_it_as_it_hangs_the_published_reader(tmp_path: Path) -> None:
    assert len(HANGS) == 49
    path = put(tmp_path, HANGS)
    with little_work(1), pytest.raises(Refused, match="array_too_long"):
        read_header(path)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-c", "import gguf,sys; gguf.GGUFReader(sys.argv[1])", path], timeout=4, check=True
        )


def test_metadata_of_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """The bytes are there (a sparse file), so only the limit stops it."""
    length = METADATA_LIMIT + 1
    path = put(tmp_path, RawGGUF(keys=(g.key("a.b", g.ARRAY, g.array(g.UINT8, length, b"")),), alignment=1).to_bytes())
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + length)
    with pytest.raises(Refused, match="metadata_too_large"):
        read_header(path)


def test_a_folder_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not_regular_file"):
        read_header(tmp_path)


def test_reads_the_vocabulary_of_a_large_model_well_within_a_second(tmp_path: Path) -> None:
    texts = b"".join(g.text(f"token {number}") for number in range(150_000))
    keys = tuple(g.key(name, g.ARRAY, g.array(g.STRING, 150_000, texts)) for name in ("a.tokens", "a.merges"))
    keys += (g.key("a.types", g.ARRAY, g.array(g.INT32, 150_000, bytes(600_000))),)
    path = put(tmp_path, SOUND.but(keys=(*SOUND.keys, *keys)).to_bytes())
    with little_work(1):
        header = read_header(path)
    assert header.fields["a.merges"][149_999] == "token 149999"


def test_any_damage_ends_in_a_pass_or_a_refusal(tmp_path: Path) -> None:
    endings = set()
    for mutant in mutate(SOUND.to_bytes(), 2500, reach=len(SOUND.to_bytes()) - 384):
        try:
            read_header(put(tmp_path, mutant))
            endings.add("pass")
        except Refused as refused:
            endings |= {refusal.code for refusal in refused.refusals}
    assert len(endings) > 20, "the mutants have to reach most checks"
    assert "pass" in endings
