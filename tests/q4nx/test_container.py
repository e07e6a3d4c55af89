import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from draftmill.outcome import Refused
from draftmill.q4nx.container import Container
from draftmill.q4nx.writing import ENGINE_ALIGNMENT, Stored, write
from tests.q4nx.raw_container import entry, raw, written

ARRAYS = {
    "model.layers.0.w": np.arange(-60, 60, dtype=np.int8).reshape(3, 40),
    "b": np.array([1.5, -2], np.float32),
    "a": np.array([7, 8, 9], np.int64),
    "c": np.full((), 5, np.int32),
    "half": np.ones((2, 2), np.float16),
    "byte": np.arange(3, dtype=np.uint8),
    "zebra": np.arange(5, dtype=np.float32),
}
LABELS = {"int8": "I8", "float32": "F32", "int64": "I64", "int32": "I32", "float16": "F16", "uint8": "U8"}


def stored() -> dict[str, Stored]:
    return {name: Stored(LABELS[array.dtype.name], array.shape, array) for name, array in ARRAYS.items()}


def test_the_vendors_form_is_what_the_safetensors_writer_makes(tmp_path: Path) -> None:
    write(tmp_path / "model.q4nx", stored())
    assert (tmp_path / "model.q4nx").read_bytes() == save(ARRAYS)


def test_metadata_is_written_as_the_safetensors_writer_does(tmp_path: Path) -> None:
    write(tmp_path / "model.q4nx", stored(), {"format": "q4nx"})
    assert (tmp_path / "model.q4nx").read_bytes() == save(ARRAYS, {"format": "q4nx"})


def test_the_aligned_form_has_gaps_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "model.q4nx"
    write(path, stored(), {"n": 3}, header_alignment=ENGINE_ALIGNMENT, tensor_alignment=ENGINE_ALIGNMENT)
    with Container.open(path) as container:
        assert (container.header.data_offset - 8) % 64 == 0
        assert container.header.gaps
        assert container.header.metadata == {"n": 3}
        for name, array in ARRAYS.items():
            tensor = container.tensors[name]
            assert (tensor.begin - container.header.data_offset) % 64 == 0
            assert (tensor.dtype, tensor.shape) == (LABELS[array.dtype.name], array.shape)
            assert container.bytes(name).tobytes() == array.tobytes()


def test_tensors_can_be_made_in_their_turn(tmp_path: Path) -> None:
    made = []

    def make(name: str) -> np.ndarray:
        made.append(name)
        return ARRAYS[name]

    write(
        tmp_path / "model.q4nx",
        {name: Stored(tensor.dtype, tensor.shape, lambda name=name: make(name)) for name, tensor in stored().items()},
    )
    assert made == ["a", "b", "zebra", "c", "half", "model.layers.0.w", "byte"]
    assert {name: array.tolist() for name, array in load_file(tmp_path / "model.q4nx").items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = written(tmp_path, b"before")

    def fail() -> bytes:
        raise error

    with pytest.raises(error):
        write(path, {"a": Stored("U8", (3,), b"abc"), "b": Stored("U8", (3,), fail)})
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["model.q4nx"]


def test_bytes_that_do_not_fill_the_shape_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 bytes given, its shape takes 3"):
        write(tmp_path / "model.q4nx", {"a": Stored("U8", (3,), b"ab")})
    assert not os.listdir(tmp_path)


def test_views_are_of_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    path = written(tmp_path, raw({"a": entry(0, 4), "b": entry(4, 8)}, b"abcdefgh"))
    with Container.open(path) as container:
        view = container.bytes("b")
        assert view.tobytes() == b"efgh"
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
        # A view, not a copy: what is written to the file is seen through it.
        with path.open("r+b") as file:
            file.seek(container.tensors["b"].begin)
            file.write(b"EF")
        assert view.tobytes() == b"EFgh"


def resident(path: Path) -> int:
    """Bytes of the file's map in memory, from the kernel."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(line.split()[1]) * 1024 for line in lines[at:] if line.startswith("Rss:"))


def test_released_pages_leave_memory_and_views_still_read(tmp_path: Path) -> None:
    size = 4 << 20
    path = written(tmp_path, raw({"a": entry(0, size)}, b"\1" * size))
    with Container.open(path) as container:
        view = container.bytes("a")
        assert view.sum(dtype=np.int64) == size
        before = resident(path)
        container.release("a")
        assert before - resident(path) > size - (1 << 16)
        assert view.sum(dtype=np.int64) == size


def test_nothing_is_read_at_open_but_the_header(tmp_path: Path) -> None:
    # A terabyte that is one hole in the file: reading it would not end.
    head = raw({"a": entry(0, 1 << 40, "I8", [1 << 30, 1 << 10])})
    path = written(tmp_path, head)
    try:
        os.truncate(path, len(head) + (1 << 40))
    except OSError:
        pytest.skip("the file system has no files of this size")
    with Container.open(path) as container:
        assert container.bytes("a")[123] == 0


def test_closing_waits_for_views(tmp_path: Path) -> None:
    path = written(tmp_path, raw({"a": entry(0, 4)}, b"abcd"))
    with Container.open(path) as container:
        view = container.bytes("a")
    assert view.tobytes() == b"abcd"


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    sound = written(tmp_path, raw({"a": entry(0, 4)}, b"abcd"))
    damaged = tmp_path / "damaged.q4nx"
    damaged.write_bytes(b"{}")
    before = len(os.listdir("/proc/self/fd"))
    with Container.open(sound) as container:
        assert container.bytes("a").tobytes() == b"abcd"
    with pytest.raises(Refused):
        Container.open(damaged)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.q4nx")
    with pytest.raises(Refused) as refused:
        Container.open(tmp_path / "model.q4nx")
    assert refused.value.code == "q4nx.not_regular_file"


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        Container.open(tmp_path)
    assert refused.value.code == "q4nx.not_regular_file"


def test_a_damaged_header_is_refused_with_the_files_name(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        Container.open(written(tmp_path, raw({"a": entry(0, 9)}, bytes(8))))
    assert (refused.value.code, refused.value.where) == ("q4nx.body_truncated", "model.q4nx:a")
