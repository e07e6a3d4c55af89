"""A store with one drafter of every outcome, published and indexed by the store's own verbs; its records are those of
tests/support/measured.py, made by hand."""

import json
from pathlib import Path
from typing import Any

from draftmill.dflash.gate import gate
from draftmill.reports.gate_page import gate_page
from draftmill.reports.measurement_files import write_report
from draftmill.store.index import Pairing, Reason, read_index, update_index
from draftmill.store.index_rebuilding import rebuild_index
from draftmill.store.local import LocalStore
from draftmill.store.pages import publish_pages
from tests.store.drafters import contents, publish_drafter, refused_row
from tests.store.samples import digest, source
from tests.support import measured
from tests.support.dflash_packages import edit_config, tiny

TINY, SILENT, BOLT, GUMIHO, OPEN = (
    "amd/PARD-Tiny",
    "amd/PARD-Quiet-1.5B",
    "FastFlowLM/Bolt-DFlash-NPU2",
    "amd/Gumiho-8B",
    "amd/PARD-Open",
)
HOSTILE_NAME = "x/<img_src=x_onerror=alert(1)>"
HOSTILE = "<script>document.title='owned'</script>\u202egpj"
PAIRS = (
    Pairing(target="Qwen/Qwen3-8B", verdict="compatible", off_pair=False),
    Pairing(target="Qwen/Qwen3-14B", verdict="compatible with remarks", off_pair=True),
    Pairing(target="other/Llama", verdict="refused", off_pair=True, why="Token 5 is another one."),
    Pairing(target="tiny/Absent", verdict="not judged", why="The repository cannot be listed."),
)
FINDINGS = (
    Reason(
        code="gumiho.no_config",
        sentence="There is no config.json.",
        where="amd/Gumiho-8B",
        measured=["README.md", "pytorch_model.bin"],
        expected="a config.json that gives the head's sizes",
        source="the file names at this commit",
        would_change="A config.json.",
    ),
    Reason(code="gumiho.flat_verifier", sentence="A flat verifier cannot use alternative candidates."),
)


def write_showcase(root: Path) -> LocalStore:
    store = LocalStore(root / "store")
    files = contents(["F16", "Q4_K_M", "Q8_0"], size=5_000)
    quiet = contents(["Q4_K_M"], size=777)
    publish_drafter(store, root / "old", TINY, files=files, day=1)
    publish_drafter(store, root / "new", TINY, files=files, day=2, recipe="ab" * 32)
    publish_drafter(store, root / "quiet", SILENT, files=quiet, source=source(repo=SILENT))
    name = "PARD-Tiny-0.6B-v1.0-Q4_K_M.gguf"
    loud, silent = digest(files[name][1]), digest(quiet[name][1])
    records = [
        ("faster", measured.speed(), loud, "cpu"),
        ("diverged", measured.diverged("clear gap"), loud, "xdna2"),
        ("silent", measured.silent(), silent, "cpu"),
        ("wide", measured.too_wide(), silent, "gpu0"),
    ]
    for day, (run, record, draft, device) in enumerate(records, 2):
        changes: dict[str, Any] = {
            "run": run,
            "started": f"2026-01-0{day}T12:00:00+00:00",
            "draft": record.draft.model_copy(update={"sha256": draft}),
            "setup": record.setup.model_copy(update={"device": device}),
        }
        for path in write_report(root / run, record.model_copy(update=changes)):
            data = path.read_bytes()
            store.create(f"reports/measure/{run}/{path.name}", data, digest(data))
    _package(store, root)
    rebuild_index(store)
    stored = read_index(store)
    assert stored is not None
    newest = next(row for row in stored.index.rows if row.entry == TINY)
    undetermined = Reason(code="gate.no_verdict", sentence="Undetermined by 2 of 50 checks.")
    update_index(
        store,
        [
            newest.model_copy(update={"pairs": PAIRS}),
            refused_row(GUMIHO, findings=FINDINGS, more_findings=3),
            refused_row(OPEN, family="PARD", verdict="no verdict", reason=undetermined),
            refused_row(HOSTILE_NAME, family=HOSTILE, licence=HOSTILE, targets=(HOSTILE,)),
            refused_row(
                "x/Hostile",
                family=HOSTILE,
                reason=Reason(code=HOSTILE, sentence=HOSTILE, measured={HOSTILE: HOSTILE}, where=HOSTILE),
                pairs=(Pairing(target=HOSTILE, verdict="not judged", why=HOSTILE),),
            ),
        ],
    )
    publish_pages(store)
    return store


def _package(store: LocalStore, root: Path) -> None:
    tiny(root / "package", 1)
    edit_config(root / "package", lambda content: content | {"attention_bias": True, "mask_token_id": 9})
    found = gate(root / "package").as_json()
    evidence = {
        "gate.json": ("evidence", json.dumps(found).encode()),
        "report.html": ("evidence", gate_page(found, BOLT).encode()),
    }
    publish_drafter(store, root / "published", BOLT, kind="package", files=evidence, source=source(repo=BOLT))
