"""Memory before and after: what comes back is silent, what stays is said."""

import threading
from pathlib import Path

import pytest

from draftmill.measurement.device.memory import memory_rise, read_memory, settled_memory
from draftmill.measurement.device.profiles import CPU, Device
from draftmill.outcome import Unavailable
from tests.support.waiting import GUARD_S, until

MIB = 1 << 20


def with_counter(path: Path) -> Device:
    return CPU.model_copy(update={"memory": {"gtt_used": path}})


def test_the_host_and_every_counter_are_read(tmp_path: Path) -> None:
    counter = tmp_path / "mem_info_gtt_used"
    counter.write_text("54760833024\n")
    assert read_memory(with_counter(counter))["gtt_used"] == 54760833024

    def agree() -> bool:
        found = read_memory(with_counter(counter))["host_available"]
        told = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return abs(found - int(told["MemAvailable"].split()[0]) * 1024) < 256 * MIB

    until(agree, "what others take or free between two looks is little")
    assert set(read_memory(CPU)) == {"host_available"}


@pytest.mark.parametrize("text", [None, "", "many"])
def test_a_counter_that_cannot_be_read_is_told(tmp_path: Path, text: str | None) -> None:
    counter = tmp_path / "counter"
    if text is not None:
        counter.write_text(text)
    with pytest.raises(Unavailable, match="counter"):
        read_memory(with_counter(counter))


@pytest.mark.parametrize(
    ("gtt", "available", "remarks"),
    [
        (1000 * MIB, 8000 * MIB, ()),
        (1256 * MIB, 7744 * MIB, ()),
        (1257 * MIB, 8000 * MIB, ("gtt_used: 257 MiB",)),
        (1000 * MIB, 7743 * MIB, ("host memory: 257 MiB",)),
        (1300 * MIB, 7700 * MIB, ("gtt_used: 300 MiB", "host memory: 300 MiB")),
        (10 * MIB, 9000 * MIB, ()),
    ],
)
def test_a_rise_beyond_256_mib_is_a_remark_and_a_fall_is_not(
    gtt: int, available: int, remarks: tuple[str, ...]
) -> None:
    before = {"host_available": 8000 * MIB, "gtt_used": 1000 * MIB}
    found = memory_rise(before, {"host_available": available, "gtt_used": gtt})
    assert tuple(remark.partition(" more")[0] for remark in found) == remarks


def test_memory_that_comes_back_a_moment_later_is_waited_for_and_what_stays_is_not_waited_for_long(
    tmp_path: Path,
) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    device = with_counter(counter)
    before = read_memory(device) | {"host_available": 0}
    counter.write_text(str(1000 * MIB))
    (tmp_path / "freed").write_text("0")
    # Renamed, since one that is being written is empty for a moment, and empty is no number.
    threading.Timer(0.5, lambda: (tmp_path / "freed").rename(counter)).start()
    assert memory_rise(before, settled_memory(device, before, within_s=GUARD_S)) == ()
    counter.write_text(str(1000 * MIB))
    after = settled_memory(device, before, within_s=0.5)
    assert memory_rise(before, after)[0].startswith("gtt_used: 1000 MiB")
