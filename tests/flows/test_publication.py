"""What a manifest says of the jobs that ran for it, while other runs do the same jobs again."""

import hashlib
import shutil
from pathlib import Path

from draftmill.hub.server import serve
from flows.cache import JobCache
from flows.chain import Chain, Done
from flows.conversion_steps import Steps
from flows.order import Order
from flows.publication import results_of
from flows.runners.choice import make_runner
from flows.stock_tools import StockTools


def resolved(work: Path, hub: str) -> Done:
    """acme/Draft as it is at the hub now; never from the cache."""
    order = Order.model_validate({"ref": "acme/Draft", "hub": hub, "work": work})
    chain = Chain(make_runner("process"), JobCache(work))
    return chain.run(Steps(order, {}, StockTools(order)).resolve("acme/Draft", "model"))


def test_the_results_of_a_run_are_its_own_although_another_resolved_the_same_meanwhile(tmp_path: Path) -> None:
    card = tmp_path / "hub" / "acme" / "Draft" / "README.md"
    card.parent.mkdir(parents=True)
    card.write_text("---\nlicense: mit\n---\n")
    work = tmp_path / "work"
    with serve(tmp_path / "hub") as server:
        done = resolved(work, server.endpoint)
        said = hashlib.sha256((done.finished.folder / "result.json").read_bytes()).hexdigest()
        card.write_text("---\nlicense: apache-2.0\n---\n")
        later = resolved(work, server.endpoint)
    assert done.key == later.key
    assert done.facts["listing"]["licence"] != later.facts["listing"]["licence"]
    assert results_of([done]) == {"resolve acme/Draft": said}
    shutil.rmtree(later.finished.folder)
    assert results_of([done]) == {"resolve acme/Draft": said}
