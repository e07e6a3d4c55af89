"""What a publication is asked to be: its parameters, and what of them the recipe's digest covers."""

from pathlib import Path
from typing import Any

from flows.order import Order
from flows.recipe import ancestors_named, asked_for


def order(**given: Any) -> Order:
    return Order.model_validate({"ref": "amd/PARD-Qwen3-0.6B", "store": "here", "work": Path("work"), **given})


def test_ancestors_that_were_named_are_told_and_change_a_recipe_only_by_the_terms_that_they_bring() -> None:
    named = {"derived_from": ["Qwen/Qwen3-0.6B"], "trained_for": ["Qwen/Qwen3-8B"], "upstream": "amd/PARD-Qwen3-0.6B"}
    assert ancestors_named(order(**named)) == named
    assert ancestors_named(order()) == {}
    assert asked_for(order(**named)) == asked_for(order())
    assert asked_for(order(trained_for=["meta-llama/Llama-3.2-1B"])) != asked_for(order())
