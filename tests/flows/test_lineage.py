"""A lineage asked for at a real hub by real jobs: chains, what is not there, and what is known without asking."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftmill.hub.server import serve
from flows.cache import JobCache
from flows.chain import Chain, JobEnded, Step
from flows.conversion_steps import Steps
from flows.lineage import named_licences, trace_lineage
from flows.order import Order
from flows.runners.choice import make_runner
from flows.stock_tools import StockTools


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("hub")
    for repo, card in {
        "acme/Tuned": "license: mit\nbase_model: acme/Merged",
        "acme/Merged": "base_model: [meta-llama/Llama-3.2-1B, acme/Gone]",
    }.items():
        (root / repo).mkdir(parents=True)
        (root / repo / "README.md").write_text(f"---\n{card}\n---\n")
    with serve(root) as server:
        yield server.endpoint


def traced(work: Path, hub: str, order: dict[str, Any], listing: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """(what the hub was asked for, the lineage)"""
    given = Order.model_validate({"ref": "acme/Draft", "hub": hub, "work": work, **order})
    chain = Chain(make_runner("process"), JobCache(work))
    asked: list[str] = []

    def do(step: Step) -> Any:
        asked.append(step.subject)
        return chain.run(step)

    found = trace_lineage(given, {"repo": "acme/Draft", **listing}, None, Steps(given, {}, StockTools(given)), do)
    return asked, [(each.name, each.relation, each.licence) for each in found]


def test_a_chain_is_asked_for_at_the_hub_until_a_line_is_known(tmp_path: Path, hub: str) -> None:
    order = {"trained_for": ["Qwen/Qwen3-8B"], "upstream": "acme/Draft"}
    asked, found = traced(tmp_path, hub, order, {"base_models": ["acme/Tuned"]})
    assert asked == ["acme/Tuned", "acme/Merged", "acme/Gone"]
    assert found == [
        ("acme/Tuned", "base", "mit"),
        ("Qwen/Qwen3-8B", "target", "apache-2.0"),
        ("acme/Merged", "base", None),
        ("meta-llama/Llama-3.2-1B", "base", "llama3.2"),
        ("acme/Gone", "base", None),
    ]


@pytest.mark.parametrize("name", ["./acme", "/etc", "..", "Llama 3", "acme/Tuned/x", "http://127.0.0.1/x"])
def test_a_card_that_names_no_repository_leads_nowhere(tmp_path: Path, hub: str, name: str) -> None:
    assert traced(tmp_path, hub, {}, {"base_models": [name]}) == ([], [(name, "base", None)])


def test_of_a_folder_nobody_is_asked(tmp_path: Path, hub: str) -> None:
    asked, found = traced(tmp_path, hub, {}, {"repo": None, "base_models": ["acme/Tuned"]})
    assert (asked, found) == ([], [("acme/Tuned", "base", None)])


def test_a_hub_that_does_not_answer_is_a_failure_and_not_an_unknown_licence(tmp_path: Path) -> None:
    with pytest.raises(JobEnded) as ended:
        traced(tmp_path, "http://127.0.0.1:9", {}, {"base_models": ["acme/Tuned"]})
    assert ended.value.result.outcome == "failed"


def test_a_text_is_in_the_recipe_of_those_alone_who_inherit_it(tmp_path: Path) -> None:
    text = tmp_path / "LICENSE"
    texts: dict[str, tuple[Path, ...]] = {"llama3.2": (text,), "gemma": (text,)}

    def inherited(**changes: Any) -> dict[str, tuple[Path, ...]]:
        return named_licences(Order(ref="acme/Draft", licence_texts=texts, **changes))

    assert inherited(trained_for=("Qwen/Qwen3-8B",)) == {}
    assert inherited(derived_from=("meta-llama/Llama-3.2-1B",)) == {"llama3.2": (text,)}
    assert inherited(trained_for=("meta-llama/Llama-3.1-8B",)) == {"llama3.1": ()}
    assert inherited(tokenizer_from="meta-llama/Llama-3.2-1B@main") == {"llama3.2": (text,)}
    assert inherited(derived_from=("meta-llama/Llama-3.2-1B",), licence_statement="an agreement with Meta") == {}
