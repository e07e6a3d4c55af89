"""The page of a drafter as text: what its verdict rests on, what there is to fetch, where it is from, its history."""

from datetime import timedelta
from pathlib import Path

import pytest

from draftmill.licences.lineage import Start, trace
from draftmill.reports.drafter_page import drafter_page
from draftmill.store.index import Pairing, Reason, Row
from draftmill.store.index_report import measurement_of
from draftmill.store.index_row import row_at, row_of
from draftmill.store.local import LocalStore
from draftmill.store.manifest import Manifest, Obligation
from tests.reports.showcase import FINDINGS, HOSTILE, PAIRS
from tests.store.drafters import START, contents, publish_drafter, refused_row
from tests.support import measured
from tests.support.page import Page

KEY = "models/amd/PARD-Tiny/index.html"
FILES = contents(["F16", "Q4_K_M"], size=500)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Row, Manifest]:
    folder = tmp_path_factory.mktemp("published")
    store = LocalStore(folder / "store")
    manifest = publish_drafter(store, folder / "files", files=FILES, day=1)
    return row_at(store, manifest.key), manifest


def words(*rows: Row, manifest: Manifest | None = None, problem: str = "") -> str:
    return Page(drafter_page(rows, KEY, manifest, problem)).words


def test_a_refusal_is_told_with_all_that_proves_it_and_what_would_change_it() -> None:
    found = words(refused_row(findings=FINDINGS, more_findings=3))
    assert "refused: There is no config.json." in found
    assert (
        'gumiho.no_config where amd/Gumiho-8B measured ["README.md", "pytorch_model.bin"] expected a config.json that '
        "gives the head's sizes source the file names at this commit would change the verdict A config.json."
    ) in found
    assert "gumiho.flat_verifier A flat verifier cannot use alternative candidates." in found
    assert "3 more of the kind" in found
    assert "published nothing" in found


def test_a_reason_alone_is_told_too() -> None:
    assert "gumiho.no_config would change the verdict A config.json." in words(refused_row())


def test_what_there_is_to_fetch_has_its_size_its_digest_and_the_command(published: tuple[Row, Manifest]) -> None:
    row, manifest = published
    found = words(row, manifest=manifest)
    assert f"Q4_K_M PARD-Tiny-0.6B-v1.0-Q4_K_M.gguf 500 {row.quants[1].sha256}" in found
    assert "draftmill pull amd/PARD-Tiny --quant Q4_K_M" in found
    assert "notice Built with Tiny" in found
    assert f"recipe {manifest.recipe}" in found
    assert manifest.source.commit in found
    assert "pass: every check passed, 2 model files published" in found


def test_inherited_terms_and_the_lineage_are_told(published: tuple[Row, Manifest], tmp_path: Path) -> None:
    """Where the row is from, too: the table of all drafters and `list` show its licence."""
    llama = Obligation(licence="llama3.2", because_of=("meta-llama/Llama-3.2-1B",), agreement="LICENSE-llama3.2.txt")
    manifest = published[1].model_copy(
        update={
            "obligations": (llama,),
            "lineage": trace([Start("meta-llama/Llama-3.2-1B", "base", "the catalogue")]),
            "parameters": {"quants": ["F16"], "inherits": {"llama3.2": {"LICENSE": "ab" * 32}}},
        }
    )
    row = row_of(manifest, {})
    assert (row.licence, published[0].licence) == ("MIT + llama3.2", "MIT")
    found = words(row, manifest=manifest)
    assert "licence MIT + llama3.2 text LICENSE terms that bind llama3.2 (of meta-llama/Llama-3.2-1B): see" in found
    assert "comes from meta-llama/Llama-3.2-1B (base, as the catalogue says; licence llama3.2, by" in found
    assert "quants" in found
    assert "inherits" not in found
    plain = words(published[0], manifest=published[1])
    assert "terms that bind" not in plain
    assert "comes from" not in plain.replace("Where it comes from", "")
    own = llama.model_copy(update={"licence": "MIT", "because_of": ("itself",)})
    assert manifest.model_copy(update={"obligations": (own,)}).terms == "MIT"


def test_an_older_publication_is_told_to_be_older_than_the_verdict(published: tuple[Row, Manifest]) -> None:
    row, manifest = published
    later = refused_row(row.entry, created=START + timedelta(days=9), recipe="cd" * 32)
    found = words(later, row, manifest=manifest)
    assert "This is the publication of 2026-01-02" in found
    assert "The newest verdict, above, is a later one" in found
    assert "This is the publication" not in words(row, manifest=manifest)


def test_off_pairs_are_marked_and_what_was_not_judged_says_why(published: tuple[Row, Manifest]) -> None:
    found = words(published[0].model_copy(update={"pairs": PAIRS}))
    assert "Qwen/Qwen3-8B compatible yes" in found
    assert "Qwen/Qwen3-14B compatible with remarks off-pair" in found
    assert "other/Llama refused off-pair Token 5 is another one." in found
    assert "tiny/Absent not judged not known The repository cannot be listed." in found


def test_every_run_is_listed_with_its_regime_and_drawn(published: tuple[Row, Manifest]) -> None:
    row = published[0]
    draft = row.quants[1].sha256
    records = {"a": measured.silent(), "b": measured.speed(), "c": measured.token_exact()}
    found = tuple(
        measurement_of(record, f"reports/measure/{name}/report.json").model_copy(update={"draft": draft})
        for name, record in records.items()
    )
    text = drafter_page([row.model_copy(update={"measurements": found})], KEY, None)
    page = Page(text)
    assert page.tags["svg"] == 2  # the newest run of this draft with this target that was timed, and that counted
    assert "Q4_K_M, target.gguf" in page.words
    assert "1.510x [1.420, 1.580], 95 %, 10 pairs" in page.words
    assert "did not speculate" in page.words
    assert all(f'href="../../../reports/measure/{name}/report.html"' in text for name in records)
    assert all(each.regime in text for each in found)


def test_the_history_has_every_verdict_with_its_date(published: tuple[Row, Manifest]) -> None:
    row, manifest = published
    older = refused_row(row.entry, created=START, recipe="cd" * 32, commit="ef" * 20)
    history = words(row, older, manifest=manifest).partition("History")[2]
    assert "2026-01-02 00:00 pass 0123456789ab feedface manifest" in history
    assert "2026-01-01 00:00 refused gumiho.no_config efefefefefef cdcdcdcd not published" in history


def test_what_strangers_wrote_is_text() -> None:
    reason = Reason(code=HOSTILE, sentence=HOSTILE, measured={HOSTILE: [HOSTILE]}, where=HOSTILE, source=HOSTILE)
    pair = Pairing(target=HOSTILE, verdict="not judged", why=HOSTILE)
    text = drafter_page([refused_row("x/" + HOSTILE.replace("/", ""), family=HOSTILE, licence=HOSTILE, reason=reason,
                                     pairs=(pair,), targets=(HOSTILE,))], KEY, None)  # fmt: skip
    assert "<script" not in text
    assert "\u202e" not in text
    assert r"&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;\u202egpj" in text


def test_a_page_is_of_its_rows_and_manifest_alone(published: tuple[Row, Manifest], tmp_path: Path) -> None:
    row, manifest = published
    assert drafter_page([row], KEY, manifest) == drafter_page([row], KEY, manifest)
