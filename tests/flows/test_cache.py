"""The job cache: what is found again, why not, and what a killed run may leave."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from flows.cache import Finished, JobCache, JobKey, digest_of
from jobs.contract import Output, Result

KEY = JobKey("convert", "code-1", {"outtype": "f16", "name": "a"}, {"model": "m-1"})
SUBJECT = "amd/PARD"


def finish(cache: JobCache, key: JobKey, text: str = "weights") -> Finished:
    with cache.claim(key) as folder:
        (folder / "out").mkdir()
        (folder / "out" / "a.gguf").write_text(text)
        output = Output(path="a.gguf", size=len(text), sha256="0" * 64)
        result = Result(job=key.job, outcome="ok", exit_code=0, outputs=[output])
        (folder / "result.json").write_text(result.model_dump_json())
        return cache.keep(key, folder, result, SUBJECT)


def test_a_finished_job_is_found_by_its_key_and_by_no_other(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    assert cache.find(KEY) is None
    finish(cache, KEY)
    found = cache.find(KEY)
    assert found is not None
    assert (found.out / "a.gguf").read_text() == "weights"
    assert cache.find(JobKey("convert", "code-2", KEY.parameters, KEY.inputs)) is None


def test_an_output_that_is_gone_or_cut_is_a_miss(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    finish(cache, KEY)
    found = cache.find(KEY)
    assert found is not None
    (found.out / "a.gguf").write_text("wei")
    assert cache.find(KEY) is None
    assert cache.why_missed(KEY, SUBJECT) == "its outputs are gone"
    finish(cache, KEY)
    assert cache.find(KEY) is not None


def test_a_miss_names_the_fields_that_changed(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    assert cache.why_missed(KEY, SUBJECT) == "never run for this"
    finish(cache, KEY)
    other = JobKey("convert", "code-2", {"outtype": "bf16", "name": "a"}, {"model": "m-1", "tokenizer": "t"})
    assert cache.why_missed(other, SUBJECT) == "changed: code, parameters.outtype, inputs.tokenizer"
    assert cache.why_missed(other, "another model") == "never run for this"


def test_what_a_killed_run_left_is_emptied_unless_the_job_goes_on_with_it(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    download = JobKey("download", "code", {}, {})
    for key, kept in ((KEY, False), (download, True)):
        with cache.claim(key) as folder:
            (folder / "leftover").write_text("x")
        with cache.claim(key) as folder:
            assert (folder / "leftover").exists() == kept


def test_a_refused_job_leaves_nothing_and_a_broken_one_what_it_has(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    download = JobKey("download", "code", {}, {})
    broken = Result(job="download", outcome="failed", exit_code=75)
    refused = Result(job="download", outcome="refused", exit_code=65)
    for result, kept in ((broken, True), (refused, False)):
        with cache.claim(download) as folder:
            (folder / "a.partial").write_text("x")
            cache.drop(folder, result)
            assert folder.exists() == kept


def test_an_inputs_digest_depends_on_each_name_size_and_content() -> None:
    one = Output(path="a", size=1, sha256="0" * 64)
    others = [
        Output(path="b", size=1, sha256="0" * 64),
        Output(path="a", size=2, sha256="0" * 64),
        Output(path="a", size=1, sha256="1" * 64),
    ]
    assert len({digest_of([output]) for output in (one, *others)}) == 4
    assert digest_of([one, others[0]]) == digest_of([others[0], one])


def test_what_a_job_said_keeps_its_digest_when_a_later_run_takes_the_folder(tmp_path: Path) -> None:
    cache = JobCache(tmp_path)
    digests = []
    for text in ("weights", "other weights"):
        done = finish(cache, KEY, text)
        digests.append((done, hashlib.sha256((done.folder / "result.json").read_bytes()).hexdigest()))
    (first, said), (second, said_later) = digests
    assert first.folder == second.folder
    assert said != said_later
    assert (first.sha256, second.sha256) == (said, said_later)
    found = cache.find(KEY)
    assert found is not None
    assert found.sha256 == said_later


def test_a_folder_that_goes_while_it_is_looked_at_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = JobCache(tmp_path)
    finish(cache, KEY)
    touch = os.utime

    def removed_first(path: Path) -> None:
        shutil.rmtree(path)
        touch(path)

    monkeypatch.setattr("flows.cache.os.utime", removed_first)
    assert cache.find(KEY) is None
