"""The index: what its rows say, that racing writers lose nothing, and that it can be made again from the store."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from draftmill.outcome import Refused, Temporary
from draftmill.reports.measurement_json import report_json
from draftmill.store import contention
from draftmill.store.index import (
    Measurement,
    Pairing,
    Reason,
    Row,
    index_of,
    merged,
    read_index,
    reasons_of,
    update_index,
)
from draftmill.store.index_rebuilding import build_index, rebuild_index
from draftmill.store.index_report import measurement_of
from draftmill.store.index_row import row_at
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from tests.speculation.records import counters
from tests.store.drafters import START, contents, publish_drafter
from tests.store.samples import digest, source
from tests.support.measured import FASTER, by_counters, file, speed
from tests.support.waiting import GUARD_S

FILES = contents(["F16", "Q4_K_M"], size=500)


def row(entry: str = "amd/PARD-Tiny", day: int = 0, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "kind": "model",
        "entry": entry,
        "family": "PARD",
        "route": "gguf",
        "verdict": "refused",
        "reason": Reason(code="x.y", sentence="It is not.", measured=[1, None], source="a page"),
        "licence": None,
        "manifest": None,
        "commit": None,
        "recipe": None,
        "created": START + timedelta(days=day),
    }
    return Row(**{**values, **changes})


def measurement(report: str, draft: str = "d" * 64, **changes: Any) -> Measurement:
    found = measurement_of(speed(FASTER), report)
    return found.model_copy(update={"draft": draft, **changes})


def put(store: Store, key: str, data: bytes) -> None:
    store.create(key, data, digest(data))


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_what_was_written_is_read_again(store: Store) -> None:
    assert read_index(store) is None
    rows = [row(day=1, measurements=(measurement("reports/measure/a/report.json"),)), row("amd/Other")]
    written = update_index(store, rows)
    stored = read_index(store)
    assert stored is not None and stored.index == written
    assert [each.entry for each in stored.index.rows] == ["amd/Other", "amd/PARD-Tiny"]
    value = json.loads(b"".join(store.read("index.json")))
    assert value["schema_version"] == 1
    assert value["rows"][1]["reason"] == {
        "code": "x.y",
        "sentence": "It is not.",
        "where": None,
        "measured": [1, None],
        "expected": None,
        "source": "a page",
        "would_change": None,
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "maybe"},
        {"reason": None},
        {"entry": "no-owner"},
        {"created": START.replace(tzinfo=None)},
        {"manifest": "models/a/b/c/manifest.json"},
        {"commit": "main"},
        {"more": 1},
    ],
)
def test_a_row_that_cannot_be_is_not_written(changes: dict[str, Any]) -> None:
    row()
    with pytest.raises(ValidationError):
        row(**changes)


def test_of_two_rows_with_one_identity_the_later_counts_with_the_measurements_of_both() -> None:
    a, b, c = (measurement(f"reports/measure/{name}/report.json", started=name) for name in "abc")
    old = row(day=3, targets=("T1",), measurements=(a, b), licence="old")
    new = row(day=1, targets=("T2",), measurements=(b, c), licence="new")
    for first, second in ((old, new), (new, old)):
        [found] = merged([first], [second])
        assert found.licence == "old"
        assert [each.report[16] for each in found.measurements] == ["a", "b", "c"]
        assert set(found.targets) == {"T1", "T2"}
    [found] = merged([old], [old.model_copy(update={"licence": "again"})])
    assert found.licence == "again"
    assert len(merged([old], [row(commit="0" * 40)])) == 2


def test_pairs_that_no_manifest_knows_outlive_a_row_made_from_one() -> None:
    pairs = (Pairing(target="T", verdict="compatible", off_pair=True),)
    [found] = merged([row(pairs=pairs)], [row(licence="again")])
    assert (found.licence, found.pairs) == ("again", pairs)
    other = (Pairing(target="U", verdict="not judged", why="It cannot be fetched."),)
    [found] = merged([row(pairs=pairs)], [row(day=1, pairs=other)])
    assert found.pairs == other


def test_a_row_lists_its_findings_up_to_a_number_and_says_how_many_more_there_are() -> None:
    refusals = [
        {"code": f"x.y{n}", "where": "a", "measured": n, "expected": 0, "sentence": "No.", "more": 1} for n in range(23)
    ]
    found = row(**reasons_of(refusals))
    assert [each.code for each in found.findings] == [f"x.y{n}" for n in range(20)]
    assert (found.more_findings, found.findings[3].measured, found.findings[3].expected) == (3, 3, 0)
    names = ["x" * 98] * 40  # 102 characters each, with quotes, comma and space
    [long] = row(**reasons_of([{**refusals[0], "measured": names}])).findings
    assert long.measured == f"{json.dumps(names)[:1000]} ... (4080 characters)"


def test_racing_writers_find_all_their_rows_in_it(store: Store) -> None:
    rows = [row(f"amd/D{number}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda each: update_index(store, [each]), rows))
    stored = read_index(store)
    assert stored is not None
    assert {each.entry for each in stored.index.rows} == {each.entry for each in rows}


def test_a_reader_beside_racing_writers_never_sees_half_an_index(store: Store) -> None:
    update_index(store, [row()])
    begun, over = threading.Event(), threading.Event()

    def read() -> None:
        while not over.is_set():
            assert read_index(store) is not None
            begun.set()

    with ThreadPoolExecutor(2) as pool:
        reader = pool.submit(read)
        assert begun.wait(GUARD_S)
        for number in range(10):
            update_index(store, [row(f"amd/D{number}", measurements=(measurement(f"r/{number}"),) * 5)])
        over.set()
        reader.result()


def test_an_index_that_is_changed_each_time_is_given_up_with_what_to_do(local: LocalStore) -> None:
    pauses: list[float] = []

    class Contended:
        def __getattr__(self, name: str) -> Any:
            return getattr(local, name)

        def replace(self, key: str, data: bytes, if_match: str | None) -> str:
            local.replace(key, row(f"amd/D{len(pauses)}").model_dump_json().encode(), local.head(key).etag)  # type: ignore[union-attr]
            local.replace(key, index_of([row(f"amd/D{len(pauses)}")]).to_bytes(), local.head(key).etag)  # type: ignore[union-attr]
            return local.replace(key, data, if_match)

    update_index(local, [row()])
    with pytest.raises(Temporary, match="read it again and repeat"):
        update_index(Contended(), [row("amd/Mine")], pauses.append)  # type: ignore[arg-type]
    assert len(pauses) == contention.TRIES - 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema_version": 2, "rows": []}', b'{"rows": [{}]}'])
def test_an_index_that_cannot_be_read_is_refused_and_replaced_only_when_asked(
    local: LocalStore, content: bytes
) -> None:
    put(local, "index.json", content)
    for attempt in (
        lambda: read_index(local),
        lambda: update_index(local, [row()]),
        lambda: rebuild_index(local),
    ):
        with pytest.raises(Refused) as error:
            attempt()  # type: ignore[no-untyped-call]
        assert error.value.code == "index.unreadable"
    assert b"".join(local.read("index.json")) == content
    rebuild_index(local, anew=True)
    stored = read_index(local)
    assert stored is not None and stored.index.rows == ()


@pytest.fixture
def filled(store: Store, tmp_path: Path) -> Iterator[Store]:
    """A PARD of two days, a gated package, and two reports: one of the drafter's Q4_K_M, one of another file."""
    publish_drafter(store, tmp_path / "a", files=FILES, day=1)
    publish_drafter(store, tmp_path / "b", files=FILES, day=2, recipe="ab" * 32)
    gate = {
        "verdict": "refused",
        "sentence": "fails 1 of 52 checks",
        "package": {"generation": 2},
        "checks": [{"refusals": []}, {"refusals": [{"code": "gate.head_dim"}]}],
    }
    package = {"gate.json": ("evidence", json.dumps(gate).encode()), "report.html": ("evidence", b"<html>")}
    publish_drafter(
        store,
        tmp_path / "c",
        "FastFlowLM/Bolt",
        kind="package",
        files=package,
        source=source(repo="FastFlowLM/Bolt"),
    )
    for run, draft in (("one", digest(FILES["PARD-Tiny-0.6B-v1.0-Q4_K_M.gguf"][1])), ("two", "9" * 64)):
        record = speed(FASTER).model_copy(update={"draft": file("d.gguf", "d").model_copy(update={"sha256": draft})})
        put(store, f"reports/measure/{run}/report.json", report_json(record).encode())
        put(store, f"reports/measure/{run}/report.html", b"<html>")
    yield store


def test_an_index_is_built_from_manifests_evidence_and_reports(filled: Store) -> None:
    built = build_index(filled)
    assert built.problems == ()
    assert filled.head("index.json") is None
    package, newest, older = built.index.rows
    assert (package.kind, package.family, package.verdict, package.route) == ("package", "DFlash 2", "refused", "gate")
    assert package.reason is not None
    assert (package.reason.code, package.reason.sentence) == ("gate.head_dim", "fails 1 of 52 checks")
    assert package.page == "packages/FastFlowLM/Bolt/0123456789ab-feedface/report.html"
    assert (newest.recipe, older.recipe) == ("ab" * 32, "feedface" + "0" * 56)
    assert (newest.family, newest.size, newest.verdict, newest.licence) == ("PARD", "0.6B", "pass", "MIT")
    assert [(quant.encoding, quant.size) for quant in newest.quants] == [("F16", 500), ("Q4_K_M", 500)]
    assert newest.quants[0].key == "models/amd/PARD-Tiny/0123456789ab-abababab/PARD-Tiny-0.6B-v1.0-F16.gguf"
    # The report names the file by its sha256, and both publications hold that file.
    for each in (newest, older):
        [found] = each.measurements
        assert found.report == "reports/measure/one/report.json"
        assert each.targets == ("target.gguf",)
    assert [each.entry for each in built.index.newest()] == ["FastFlowLM/Bolt", "amd/PARD-Tiny"]


def test_a_speed_report_in_short_has_the_ratio_of_its_samples() -> None:
    found = measurement_of(speed(FASTER), "reports/measure/x/report.json")
    assert (found.what, found.word, found.device, found.lossless) == ("speed", "faster", "cpu", "identical")
    assert found.ratio is not None
    # The median of FASTER is (1.50 + 1.52) / 2; of ten pairs the interval of the median is the 2nd to the 9th ratio.
    assert found.ratio.value == pytest.approx(1.51, abs=0.005)
    assert (found.ratio.low, found.ratio.high) == (pytest.approx(1.42), pytest.approx(1.58))
    assert (found.ratio.pairs, found.ratio.level) == (10, 0.95)
    assert found.acceptance[0].kind is None
    assert [each.kind for each in found.acceptance[1:]] == ["explanation", "code"]
    whole, *kinds = found.acceptance
    assert whole.accepted == sum(each.accepted for each in kinds)
    assert found.draft == "d" * 64


def test_an_acceptance_report_in_short_has_its_counts() -> None:
    found = measurement_of(by_counters(), "reports/measure/x/report.json")
    assert (found.what, found.ratio, found.lossless) == ("acceptance", None, None)
    assert found.acceptance[0].offered > 0
    assert [each.span for each in found.acceptance] == [None] * len(found.acceptance)  # two prompts: too few


def test_a_report_over_enough_prompts_has_the_interval_of_its_acceptance() -> None:
    """Six prompts of one kind: three accept 50 of 52 drafts in 13 rounds, three none of 63 x 4."""
    record = by_counters()
    assert record.acceptance is not None
    none = {"accepted": 0, "offered": 252, "passes": 63, "undrafted": 0, "by_position": None}
    answers = tuple(
        counters().model_copy(update={"prompt": f"p{n}", "by_position": None} | (none if n % 2 else {}))
        for n in range(6)
    )
    prompts = tuple(record.prompts[0].model_copy(update={"name": f"p{n}", "kind": "code"}) for n in range(6))
    acceptance = record.acceptance.model_copy(update={"answers": answers})
    found = measurement_of(record.model_copy(update={"acceptance": acceptance, "prompts": prompts}), "reports/m/x")
    whole, code = found.acceptance
    assert (whole.kind, code.kind) == (None, "code")
    assert code.span is not None
    assert (code.accepted, code.offered, code.span.prompts, code.span.level) == (150, 912, 6, 0.95)
    assert 0 <= code.span.low < 150 / 912 < code.span.high <= 50 / 52
    assert whole.span == code.span


def test_damaged_manifests_and_reports_are_left_out_and_told(filled: Store) -> None:
    put(filled, "models/amd/Broken/0123456789ab-feedface/manifest.json", b"{}")
    put(filled, "reports/measure/three/report.json", b"[]")
    built = build_index(filled)
    assert len(built.index.rows) == 3
    assert sorted(problem.partition(" is left out")[0].rpartition("/")[2] for problem in built.problems) == [
        "manifest.json",
        "report.json",
    ]


def test_rebuilding_keeps_what_only_the_index_knows_and_drops_what_is_gone(filled: Store, tmp_path: Path) -> None:
    gone = publish_drafter(filled, tmp_path / "gone", "amd/Gone", files=FILES, source=source(repo="amd/Gone"))
    rebuild_index(filled)
    update_index(filled, [row("amd/Gumiho"), row_at(filled, gone.key)])
    filled.delete(gone.key)
    [pard] = [each for each in rebuild_index(filled).index.newest() if each.entry == "amd/PARD-Tiny"]
    stale = pard.model_copy(
        update={"measurements": (*pard.measurements, measurement("reports/measure/no/report.json"))}
    )
    update_index(filled, [stale])
    built = rebuild_index(filled)
    assert {each.entry for each in built.index.rows} == {"amd/Gumiho", "amd/PARD-Tiny", "FastFlowLM/Bolt"}
    [pard] = [each for each in built.index.newest() if each.entry == "amd/PARD-Tiny"]
    assert [each.report for each in pard.measurements] == ["reports/measure/one/report.json"]
    assert {each.entry for each in rebuild_index(filled, anew=True).index.rows} == {"amd/PARD-Tiny", "FastFlowLM/Bolt"}


def test_what_is_published_while_the_index_is_rebuilt_stays_in_it(filled: Store, tmp_path: Path) -> None:
    def late(what: str, done: int, total: int) -> None:
        if done == total:  # the listing is over, the index not yet written
            manifest = publish_drafter(
                filled, tmp_path / "late", "amd/Late", files=FILES, source=source(repo="amd/Late")
            )
            update_index(filled, [row_at(filled, manifest.key)])

    built = rebuild_index(filled, late)
    assert "amd/Late" in {each.entry for each in built.index.rows}
