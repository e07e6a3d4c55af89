"""Routes: the reasoned refusal, and a new one that is a file and a rule."""

from pathlib import Path
from typing import Any

import pytest

import flows.routes
from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.evidence import Evidence
from draftmill.catalogue.schema import Drafter
from draftmill.configuration import config_path
from draftmill.hub.listing import ListedFile, Listing
from flows.catalogue_planner import check_routes
from flows.order import Order
from flows.routes import gguf, refuse
from flows.routes.route import Outcome, Setting, Subject, find_route, routes
from flows.runners.process import ProcessRunner
from tests.support.catalogue_hub import CATALOGUE

REPO = "amd/Gumiho-llama3-8b"
FAMILIES = load_catalogue(config_path("catalogue.yaml")).families


def refused(files: tuple[str, ...], config: dict[str, Any] | None = None, repo: str = REPO) -> Outcome:
    family = FAMILIES["Gumiho"]
    subject = Subject(repo, "ab" * 20, files, "Gumiho", family, Drafter())
    order = refuse.order(subject, Setting("http://hub", "store", Path("work")))
    return refuse.run(subject, order, Evidence(repo, files, config), ProcessRunner())


def test_each_reason_says_what_was_measured_where_from_and_what_would_change_it() -> None:
    outcome = refused(("README.md", "pytorch_model.bin"))
    assert outcome.verdict == "refused"
    found = {each["code"]: each for each in outcome.refusals}
    assert list(found) == ["gumiho.no_config", "gumiho.pickle_only", "gumiho.flat_verifier"]
    assert found["gumiho.no_config"]["measured"] == {"config.json": []}
    assert found["gumiho.pickle_only"]["measured"] == {"*.bin": ["pytorch_model.bin"], "*.safetensors": []}
    assert "63 drafts" in found["gumiho.flat_verifier"]["measured"]
    assert "chain" in found["gumiho.flat_verifier"]["would_change"]
    for each in outcome.refusals:
        assert each["where"] == f"{REPO}@{'ab' * 6}"
        assert all(each[key] for key in ("expected", "sentence", "source", "would_change"))


def test_a_premise_that_no_longer_holds_takes_the_verdict_away() -> None:
    outcome = refused(("config.json", "pytorch_model.bin"), {"model_type": "gumiho"})
    assert outcome.verdict == "no verdict"
    assert [each["code"] for each in outcome.refusals] == ["gumiho.no_config"]
    assert outcome.refusals[0]["measured"] == {"config.json": ["config.json"]}
    assert "no longer holds" in outcome.sentence
    outcome = refused(("model.safetensors", "pytorch_model.bin"))
    assert [each["code"] for each in outcome.refusals] == ["gumiho.pickle_only"]


def test_the_routes_are_the_modules_of_the_package() -> None:
    assert routes() == ("dflash", "gate", "gguf", "gguf_borrowed", "refuse")
    for name in routes():
        route = find_route(name)
        assert route.kind in ("model", "package")
        assert callable(route.run)


def test_a_new_family_is_a_new_file_and_a_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "eagle.py").write_text("from flows.routes.refuse import *\npairs = False\n")
    monkeypatch.setattr(flows.routes, "__path__", [*flows.routes.__path__, str(tmp_path)])
    rule = "families:\n  Eagle:\n    route: eagle\n    names: [x/Eagle-*]\n    signs: [{config: {model_type: eagle}}]\n"
    path = tmp_path / "catalogue.yaml"
    path.write_text(CATALOGUE.replace("families:\n", rule))
    check_routes(load_catalogue(path))
    assert find_route("eagle").pairs is False


def test_what_a_model_needs_follows_from_its_weights() -> None:
    weights, rest = 1_000_000_000, 10_000_000
    files = (
        ListedFile(path="model.safetensors", size=weights, blob_id="0" * 40),
        ListedFile(path="tokenizer.json", size=rest, blob_id="0" * 40),
    )
    listing = Listing(repo="a/b", requested_revision="main", commit="0" * 40, source="hub", files=files)
    needs = gguf.needs(listing, Order(ref="a/b", quants=("Q8_0",)))
    assert needs.download == weights + rest
    # Downloaded, then F16 (as large) and Q8_0 (34 bytes for 32 weights of 2 bytes), each in the cache and in the store.
    assert needs.disk >= weights + rest + 2 * (weights + weights * 34 // 64)
    assert needs.disk <= 1.05 * (weights + rest + 2 * (weights + weights * 34 // 64))
    # The check loads the F16 file whole.
    assert weights < needs.memory < 3 * weights
