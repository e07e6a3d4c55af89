"""The job cache grows old and too large, and loses what nobody uses."""

import os
from pathlib import Path

from flows.cache import JobCache, JobKey
from flows.cache_garbage import CachedJob, cached_jobs, remove, superfluous
from jobs.contract import Output, Result

DAY = 86400.0


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
