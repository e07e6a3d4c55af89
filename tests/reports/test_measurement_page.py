"""The page of a measurement: its verdict, every figure beside what it is, and no stranger's text as markup."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from draftmill.measurement.record import ALONE, Accepted, Memory, Speed
from draftmill.reports.document_page import document_page
from draftmill.reports.measurement_document import measurement_document
from tests.support import measured
from tests.support.page import Page

Record = Speed | Accepted
OUTCOMES = {**measured.SPEEDS, **measured.ACCEPTANCES}


def page(record: Record) -> str:
    return document_page(measurement_document(record))


def words(record: Record) -> str:
    return Page(page(record)).words


@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES)
def test_every_outcome_is_a_whole_page_of_its_own(make: Callable[[], Record]) -> None:
    text = page(make())
    found = Page(text)
    assert found.tags["h1"] == 1
    without_namespace = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"://|<script|<link|<img|<iframe|@import|url\(", without_namespace)
    assert not {tag for tag, name, _ in found.attributes if name in ("src", "href") or name.startswith("on")}
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("beginning", OUTCOMES)
def test_every_outcome_has_its_sentence_at_the_top(beginning: str) -> None:
    verdict = re.search(r'<p class="verdict (\w+)">([^<]*)</p>', page(OUTCOMES[beginning]()))
    assert verdict
    assert verdict[2].startswith(beginning)


@pytest.mark.parametrize(
    ("make", "tone"),
    [
        (measured.speed, "good"),
        (measured.slower, "bad"),
        (measured.no_difference, "plain"),
        (measured.too_wide, "open"),
        (measured.silent, "bad"),
        (lambda: measured.diverged("near-tie"), "open"),
        (lambda: measured.diverged("clear gap"), "bad"),
        (measured.token_exact, "plain"),
        (measured.silent_acceptance, "bad"),
    ],
)
def test_a_faster_draft_that_changes_the_text_is_not_shown_as_good(make: Callable[[], Record], tone: str) -> None:
    assert f'<p class="verdict {tone}">' in page(make())


def test_what_strangers_wrote_is_text_and_nothing_else() -> None:
    text = page(measured.hostile())
    found = Page(text)
    assert not {"script", "img", "summary>"} & set(found.tags)
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert r"<script>alert(1)</script>\u202egpj.\x1b[31m|`x`" in found.words
    # As many elements as the same record has with harmless names.
    harmless = (
        measured.hostile().model_dump_json().replace(json.dumps(measured.HOSTILE, ensure_ascii=False)[1:-1], "name")
    )
    assert found.tags == Page(page(Speed.model_validate_json(harmless))).tags


def test_the_ratio_of_a_faster_pair_with_all_that_says_how_sure_it_is() -> None:
    """Ten ratios, sorted: 1.40 1.42 1.45 1.48 1.50 1.52 1.53 1.55 1.58 1.60. Median (1.50 + 1.52) / 2; interval from
    the second to the last but one, since 2 (1 + 10) / 1024 is below 0.05 and 2 (1 + 10 + 45) / 1024 is not; deviations
    .01 .01 .02 .03 .04 | .06 .07 .09 .09 .11."""
    found = words(measured.speed())
    assert "median ratio 1.510x 1.510x" in found
    assert "95% interval, decides [1.420, 1.580] [1.420, 1.580]" in found
    assert "spread (MAD) 0.050 0.050" in found
    assert "pairs 10 10" in found
    assert "bootstrap 4000 resamples and permutations, seed 0" in found
    assert "at least 6 pairs" in found


def test_both_arms_are_for_reading_inside_the_run() -> None:
    """0.06 s a token alone is 16.67 a second, and 16.67 x 1.51 with the draft; two threads: 0.12 CPU seconds."""
    found = words(measured.speed())
    assert "tokens/s, only inside this run 16.67 25.17" in found
    assert "CPU seconds per token 0.12 0.08" in found
    assert "warm-up / median of the kept 2.000x, 1.000x 3.020x, 1.510x" in found
    assert "share of time waiting for a core 50.0 % 50.0 %" in words(measured.too_busy())
    assert "processor time, target alone / target + draft 1.510x" in found


def test_each_kind_has_its_own_ratio_and_its_own_text() -> None:
    """Even pairs ask for an explanation: 1.50 1.60 1.55 1.52 1.58; odd ones for code: 1.40 1.45 1.48 1.42 1.53."""
    found = words(measured.diverged("near-tie"))
    assert "explanation 5 1.550x too few pairs no verdict (too few pairs) 96.2 % identical" in found
    assert "code 5 1.450x too few pairs no verdict (too few pairs) 96.2 % diverged: near-tie" in found


def test_a_rounds_cost_keeps_the_definition_of_its_tokens() -> None:
    """63 / 13 and 64 / 13 tokens a round, divided by 1.51."""
    found = words(measured.speed())
    assert "round cost in target tokens, untruncated 3.209 (pooled)" in found
    assert "round cost in target tokens, budget 3.260 (pooled)" in found


def test_every_pair_is_there_with_the_arm_that_went_first() -> None:
    found = words(measured.diverged("near-tie"))
    assert "0 sky target alone 0.06 0.04 1.500x yes" in found
    assert "1 sort target + draft 0.06 0.04286 1.400x no" in found
    assert "2 sky target alone 0.06 0.0375 1.600x yes" in found


def test_what_rests_on_a_ratio_without_verdict_says_so() -> None:
    assert "That ratio has no verdict, so neither has this." in words(measured.too_wide())
    assert "neither has this" not in words(measured.slower())


def test_an_interval_that_reaches_no_level_is_called_the_whole_range() -> None:
    """Three pairs: 1 - 2 / 8 is 75 %; eight: 1 - 2 / 256."""
    assert "[1.400, 1.600], the whole range: too few pairs for the level" in words(measured.too_few())
    assert "whole range" not in words(measured.too_wide())


def test_where_answers_part_is_told_token_by_token() -> None:
    found = words(measured.diverged("near-tie", "another batch width", "clear gap"))
    assert "1 sort 5 5 1000 5 0.0100 near-tie" in found
    assert "2 sky 5 5 1000 1000 1.5000 another batch width" in found
    assert "3 sort 5 5 1000 5 1.5000 clear gap" in found
    assert "Where the answers part" not in words(measured.speed())


def test_an_answer_that_ended_earlier_has_no_token_there() -> None:
    ended = measured.divergence("clear gap", with_draft=None)
    record = measured.diverged("clear gap").model_copy(update={"divergences": (ended,)})
    assert "1 sort 5 5 ended 5 1.5000 clear gap" in words(record)


def test_a_silent_draft_has_no_ratio_anywhere() -> None:
    text = page(measured.silent())
    found = Page(text).words
    assert "there is no ratio" in found
    assert "cause no spec type evidence slots[0].speculative is false at prompt sky" in found
    assert "<svg" not in text
    assert not re.search(r"\dx \[|Round cost|By kind", found)


def test_answers_of_one_token_have_a_ratio_of_the_request_alone() -> None:
    record = measured.speed()
    short = tuple(each.model_copy(update={"tokens": (7,), "counters": None}) for each in record.samples)
    found = words(record.model_copy(update={"samples": short}))
    assert "whole request, decides verdict faster median ratio 1.510x 95% interval" in found
    assert "generation only" not in found
    assert "Round cost" not in found


def test_an_engine_that_does_not_count_rounds_has_a_ratio_and_no_acceptance() -> None:
    found = words(measured.uncounted())
    assert "median ratio 1.510x" in found
    assert "counters of rounds are missing" in found
    assert "not counted identical" in found
    assert "Round cost" not in found


def test_the_published_list_gives_each_of_its_figures_with_its_definition() -> None:
    found = words(measured.token_exact())
    for told in (
        "accepted/offered 52.4 % 44/84 52.4 % accepted / offered drafts",
        "accepted/rounds 2.095 44/21 2.095",
        "tokens/round, untruncated 3.095 65/21 3.095 (accepted + rounds) / rounds",
        "tokens/round, budget 3.048 64/21 3.048 budget / rounds",
        "accepted/tested 80.0 % 44/55 80.0 %",
        "zero rounds 38.1 % 8/21",
        "full rounds 47.6 % 10/21",
        "between rounds 14.3 % 3/21",
        "bimodality 85.7 % 18/21",
        "64; 1 more were produced and cut",
        "2 52.4 % 11/21 84.6 % 11/13",
    ):
        assert told in found
    assert Page(page(measured.token_exact())).tags["svg"] == 3


def test_the_other_published_list_too() -> None:
    found = words(measured.token_exact_pard2())
    assert "tokens/round, untruncated 2.364 26/11" in found
    assert "tokens/round, budget 2.182 24/11" in found
    assert "zero rounds 45.5 % 5/11" in found


def test_counters_say_what_they_do_not_know_instead_of_a_number() -> None:
    """50 + 48 of 52 + 56; the mean of 50/52 and 48/56 is 90.9 %. 63 + 63 tokens in 13 + 15 rounds."""
    found = words(measured.by_counters())
    assert "accepted/offered 90.7 % 98/108 90.9 %" in found
    assert "tokens/round, untruncated 4.500 126/28 4.523" in found
    assert "The counters route gives totals, not each round: the per-round strip" in found
    assert "bimodality" not in found
    assert "explanation 1 50/52 96.2 % 4.846 4.923" in found
    assert "code 1 48/56 85.7 % 4.200 4.267" in found


def test_what_ran_and_where_and_how_to_run_it_again() -> None:
    found = words(measured.speed())
    regime = measured.speed().regime
    for told in (
        f"digest {regime.digest}",
        "n_max, drafts offered a round at most 4",
        "fallback, acceptance below which it decodes plainly does not apply",
        "target alone and target + draft, read from the live process:",
        "build xllamacpp 2026.10.11549",
        "kernel variant SSE3 AVX AVX2 F16C FMA",
        "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0 changed since, or not readable",
        "OMP_NUM_THREADS 2",
        "cores this process may use 2",
        "memory 7.8 GiB (8,323,239,936 bytes)",
        "-m 'target model.gguf' -md draft.gguf --spec-type draft-simple --spec-draft-n-max 4",
        "draftmill measure speed --target target.gguf --draft draft.gguf --device cpu --form raw --budget 64 --n-max 4",
        "host_available 6.0 GiB (6,442,450,944 bytes) 6.0 GiB (6,442,446,848 bytes) -4.0 KiB (-4,096 bytes)",
        "No rise that stayed.",
    ):
        assert told in found
    assert "<details>" in page(measured.speed())


def test_arms_that_ran_something_else_are_told_apart() -> None:
    other = {ALONE: measured.ran(ALONE), "target + draft": measured.ran("target + draft", variant="AVX512")}
    found = words(measured.speed(ran=other))
    assert "target alone, read from the live process:" in found
    assert "target + draft, read from the live process:" in found


def test_remarks_come_before_the_figures() -> None:
    memory: dict[str, Any] = {"before": {"gtt": 1 << 30}, "after": {"gtt": 3 << 30}}
    told = Memory(**memory, remarks=("gtt: 2048 MiB more in use than before",))
    found = words(measured.speed(remarks=("the draft lacks merges",), memory=told, pairing=("pre-tokenizers differ",)))
    assert found.index("the draft lacks merges") < found.index("median ratio")
    assert "gtt: 2048 MiB more in use than before" in found
    assert "gtt 1.0 GiB (1,073,741,824 bytes) 3.0 GiB (3,221,225,472 bytes) 2.0 GiB (2,147,483,648 bytes)" in found
    assert "The check of the pair remarks: pre-tokenizers differ" in found


def test_servers_that_took_turns_are_told_so() -> None:
    setup = measured.speed().setup.model_copy(update={"together": False, "block": 8})
    assert "servers one server at a time, restarted every 8 pairs" in words(measured.speed(setup=setup))
    assert "restarted" not in words(measured.token_exact())


def test_one_style_serves_phone_dark_and_paper() -> None:
    text = page(measured.speed())
    assert 'name="viewport" content="width=device-width,initial-scale=1"' in text
    for rule in ("@media (max-width:40rem)", "prefers-color-scheme:dark", "@media print"):
        assert rule in text
    assert text.count('<div class="scroll"') == text.count("<table")
