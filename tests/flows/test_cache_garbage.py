"""The job cache grows old and too large, and loses what nobody uses."""

import os
import threading
from pathlib import Path

from flows.cache import JobCache, JobKey
from flows.cache_garbage import CachedJob, cached_jobs, remove, remove_staged, staged_long_ago, superfluous
from jobs.contract import Output, Result
from tests.support.waiting import until

DAY = 86400.0
HOUR = 3600.0


def finished(work: Path, name: str, size: int) -> JobKey:
    """A finished job of `size` bytes."""
    key = JobKey(name, "code", {}, {})
    cache = JobCache(work)
    with cache.claim(key) as folder:
        (folder / "out").mkdir()
        (folder / "out" / "file").write_bytes(bytes(size))
        result = Result(job=name, outcome="ok", exit_code=0, outputs=[Output(path="file", size=size, sha256="0" * 64)])
        (folder / "result.json").write_text(result.model_dump_json())
        cache.keep(key, folder, result, "subject")
    return key


def job(name: str, size: int, used: float) -> CachedJob:
    return CachedJob(Path(name), size, used)


def test_old_jobs_go_first_and_then_the_oldest_until_the_rest_fits() -> None:
    jobs = [job("a", 5, 0), job("b", 5, 50), job("c", 5, 60), job("d", 5, 70)]

    def gone(age_s: float, most: int | None) -> list[str]:
        return [str(each.folder) for each in superfluous(jobs, now=100, age_s=age_s, most_bytes=most)]

    assert gone(60, None) == ["a"]
    assert gone(60, 15) == ["a"]
    assert gone(60, 14) == ["a", "b"]
    assert gone(1000, 0) == ["a", "b", "c", "d"]
    assert gone(1000, None) == []


def test_a_job_in_the_cache_is_found_with_its_size_and_removed(tmp_path: Path) -> None:
    key = finished(tmp_path, "convert", 1000)
    [found] = cached_jobs(tmp_path)
    assert 1000 < found.size < 20_000
    assert remove(found)
    assert cached_jobs(tmp_path) == []
    assert JobCache(tmp_path).find(key) is None


def test_a_job_that_is_used_counts_as_new(tmp_path: Path) -> None:
    key = finished(tmp_path, "convert", 10)
    [made] = cached_jobs(tmp_path)
    for path in (made.folder, *made.folder.rglob("*")):
        os.utime(path, (1, 1))
    assert cached_jobs(tmp_path)[0].used == 1
    assert JobCache(tmp_path).find(key)
    assert cached_jobs(tmp_path)[0].used > 1


def test_a_running_job_stays(tmp_path: Path) -> None:
    key = JobKey("convert", "code", {}, {})
    with JobCache(tmp_path).claim(key) as folder:
        (folder / "half").write_bytes(b"half")
        [found] = cached_jobs(tmp_path)
        assert not remove(found)
        assert (folder / "half").exists()
    assert remove(found)


class Writer:
    """Makes hidden folders with a file in them and takes them away again, as whoever downloads does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._enough.is_set():
            hidden = self.folder / f".{self.made % 7}"
            hidden.mkdir()
            (hidden / "part").write_bytes(b"part")
            (hidden / "part").unlink()
            hidden.rmdir()
            self.made += 1


def test_a_writer_beside_does_not_disturb_the_listing(tmp_path: Path) -> None:
    key = JobKey("download", "code", {}, {})
    with JobCache(tmp_path).claim(key) as folder, Writer(folder) as writer:
        for number in range(200):
            (folder / f"file-{number}").touch()
        until(lambda: writer.made > 100, "the writer writes")
        seen = writer.made
        while writer.made < seen + 2000:
            assert [job.folder for job in cached_jobs(tmp_path)] == [folder]


def test_a_job_that_was_finished_after_it_was_listed_stays(tmp_path: Path) -> None:
    key = JobKey("convert", "code", {}, {})
    cache = JobCache(tmp_path)
    with cache.claim(key) as folder:
        result = Result(job="convert", outcome="ok", exit_code=0)
        (folder / "result.json").write_text(result.model_dump_json())
        [listed] = cached_jobs(tmp_path)
        cache.keep(key, folder, result, "subject")
    assert not remove(listed)
    assert cache.find(key)


def test_a_job_that_was_used_after_it_was_listed_stays(tmp_path: Path) -> None:
    key = finished(tmp_path, "convert", 10)
    [made] = cached_jobs(tmp_path)
    for path in (made.folder, *made.folder.rglob("*")):
        os.utime(path, (1, 1))
    [listed] = cached_jobs(tmp_path)
    assert JobCache(tmp_path).find(key)
    assert not remove(listed)
    assert JobCache(tmp_path).find(key)
    [listed_again] = cached_jobs(tmp_path)
    assert remove(listed_again)


def test_what_a_killed_measurement_was_given_goes_by_its_age_and_never_within_a_day(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(bytes(1000))
    now = model.stat().st_mtime
    for run, age in (("new", 2 * HOUR), ("old", 30 * HOUR)):
        slot = tmp_path / "measured" / run / "draft"
        slot.mkdir(parents=True)
        (slot / "copied").write_bytes(bytes(10))
        os.link(model, slot / "linked")
        for folder in (slot, slot.parent):
            os.utime(folder, (now - age, now - age))

    def named(age_s: float) -> list[str]:
        return [staged.folder.name for staged in staged_long_ago(tmp_path, now=now, age_s=age_s)]

    assert named(31 * HOUR) == []
    assert named(29 * HOUR) == ["old"]
    assert named(0) == ["old"]
    [staged] = staged_long_ago(tmp_path, now=now, age_s=0)
    assert staged.size == 10 + (staged.folder / "draft").lstat().st_size
    assert remove_staged(staged)
    assert named(0) == []
    assert model.read_bytes() == bytes(1000)
    assert (tmp_path / "measured" / "new" / "draft" / "linked").exists()
