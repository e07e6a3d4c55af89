"""Who inherits from whom: chains of cards and known lines."""

import pytest

from draftmill.licences.lineage import LARGEST, Card, Start, trace
from draftmill.licences.lines import known_line
from draftmill.outcome import Refused

COMMIT = "0123456789ab" + "c" * 28


@pytest.mark.parametrize(
    ("repo", "licence"),
    [
        ("meta-llama/Llama-2-70b-chat-hf", "llama2"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama3.1"),
        ("meta-llama/Llama-3.2-1B", "llama3.2"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.3"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4"),
        ("lmsys/vicuna-7b-v1.5", "llama2"),
        ("lmsys/vicuna-13b-v1.3", "llama1"),
        ("Qwen/Qwen3-0.6B", "apache-2.0"),
        ("Qwen/Qwen3-30B-A3B", "apache-2.0"),
        ("Qwen/Qwen2.5-7B-Instruct", "apache-2.0"),
        ("Qwen/Qwen2.5-3B-Instruct", "qwen-research"),
        ("Qwen/Qwen2.5-Math-72B", "qwen"),
        ("google/gemma-2-9b-it", "gemma"),
        ("google/gemma-3n-E2B-it", "gemma"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "apache-2.0"),
        ("HuggingFaceTB/SmolLM2-135M", "apache-2.0"),
    ],
)
def test_a_known_line_has_the_licence_of_its_publisher(repo: str, licence: str) -> None:
    line = known_line(repo)
    assert line is not None
    assert line.licence == licence
    assert line.source


@pytest.mark.parametrize(
    "repo", ["somebody/Llama-3.1-8B", "Qwen/Qwen3.8-27B", "Qwen/Qwen2.5-VL-7B-Instruct", "meta-llama/Llama-5-8B", "x/y"]
)
def test_a_model_that_only_looks_like_one_of_a_line_is_none(repo: str) -> None:
    assert known_line(repo) is None


def test_a_chain_of_cards_is_followed_to_a_known_line() -> None:
    cards = {
        "acme/draft-base": Card("mit", ("acme/tuned",), COMMIT),
        "acme/tuned": Card(None, ("meta-llama/Llama-3.2-1B",), COMMIT),
    }
    found = trace([Start("acme/draft-base", "base", "its card")], cards.get)
    assert [(each.name, each.relation, each.said_by, each.licence, each.known_from) for each in found] == [
        ("acme/draft-base", "base", "its card", "mit", "its card at 0123456789ab"),
        ("acme/tuned", "base", "the card of acme/draft-base", None, None),
        (
            "meta-llama/Llama-3.2-1B",
            "base",
            "the card of acme/tuned",
            "llama3.2",
            "the licence of meta-llama's repositories",
        ),
    ]


def test_a_distilled_model_brings_what_it_was_made_from() -> None:
    found = trace([Start("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "target", "the catalogue")])
    assert [(each.name, each.relation, each.licence) for each in found] == [
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "target", "mit"),
        ("meta-llama/Llama-3.1-8B", "target", "llama3.1"),
    ]
    assert found[1].said_by == "deepseek-ai/DeepSeek-R1 README, section License"


def test_each_is_named_once_and_a_circle_ends() -> None:
    cards = {"a/x": Card("mit", ("a/y", "a/me"), COMMIT), "a/y": Card("mit", ("a/x",), COMMIT)}
    found = trace([Start("a/x", "base", "its card"), Start("a/y", "target", "the catalogue")], cards.get, "a/me")
    assert [(each.name, each.relation) for each in found] == [("a/x", "base"), ("a/y", "target")]


def test_of_whom_nobody_says_anything_nothing_is_known() -> None:
    (found,) = trace([Start("a/gone", "base", "its card")])
    assert (found.licence, found.known_from) == (None, None)


def test_a_chain_without_an_end_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        trace([Start("a/0", "base", "its card")], lambda name: Card("mit", (f"a/{int(name[2:]) + 1}",), COMMIT))
    assert refused.value.code == "lineage.too_long"
    assert len(refused.value.refusals[0].measured) == LARGEST
