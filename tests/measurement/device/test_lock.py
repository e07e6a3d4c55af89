"""Which lock a device has, and where it lies. tests/test_kernel_lock.py shows what such a lock is worth."""

from pathlib import Path

import pytest

from draftmill.measurement.device.lock import LOCKS, device_lock, lock_folder, lock_path
from draftmill.measurement.device.profiles import CPU
from draftmill.outcome import Temporary


def test_the_folder_is_the_named_one_else_the_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOCKS, str(tmp_path))
    assert lock_folder() == tmp_path
    monkeypatch.delenv(LOCKS)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    # Nothing that differs from user to user decides.
    assert lock_folder() in (Path("/run/lock/draftmill"), Path("/tmp/draftmill"))


def test_profiles_of_one_device_have_one_lock(tmp_path: Path) -> None:
    twin = CPU.model_copy(update={"name": "cpu-other-build"})
    other = CPU.model_copy(update={"name": "other", "lock": "other"})
    with device_lock(CPU, run="x", folder=tmp_path):
        with (
            pytest.raises(Temporary, match="device cpu-other-build is held") as caught,
            device_lock(twin, run="y", folder=tmp_path),
        ):
            pass
        assert caught.value.code == "device.held"
        with device_lock(other, run="y", folder=tmp_path):
            pass
    assert lock_path(twin, tmp_path) == tmp_path / "cpu.lock"
