"""Measured for real: the engine from the package, SmolLM2, and drafts that are good, middling, bad and impossible."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from draftmill.measurement.acceptance import measure_by_counters, measure_token_exact
from draftmill.measurement.acceptance_results import acceptance_result
from draftmill.measurement.comparison import compare
from draftmill.measurement.device.profiles import CPU
from draftmill.measurement.plan import Plan
from draftmill.measurement.prompts import Prompt, load_prompts
from draftmill.measurement.record import Speed
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import xllamacpp
from draftmill.measurement.speed import measure_speed
from draftmill.measurement.speed_results import SpeedResult, speed_result
from draftmill.measurement.statistics import Rule
from draftmill.outcome import Refused
from draftmill.speculation.figures import Definition
from draftmill.speculation.regime import comparable
from tests.support import pairs
from tests.support.stock import debian_server

PATIENT = Rule(waiting=1.0)
F16 = {"cache_type_k": "f16", "cache_type_v": "f16"}
SKY = Prompt("sky", "explanation", "Q: Explain in plain words why the sky appears blue during the day. A:")
TRIES = 3


def plan(target: Path, draft: Path, **changes) -> Plan:
    drafting = {name: changes.pop(name) for name in ("spec_type",) if name in changes}
    made = Plan(
        provider=xllamacpp(),
        settings=Settings(target, 512, 1, **F16),
        drafting=Drafting(draft, n_max=4, n_min=0, p_min=0.0, **F16, **drafting),
        device=CPU,
        prompts=(SKY,),
        run="real",
        budget=32,
        warm_up=1,
    )
    return replace(made, **changes)


def measured(target: Path, draft: Path, pairs_: int, **changes) -> tuple[Speed, SpeedResult]:
    """Again while other work leaves no verdict, which is tested elsewhere."""
    for _ in range(TRIES):
        record = measure_speed(plan(target, draft, **changes), pairs_)
        result = speed_result(record)
        if result.word != "no verdict":
            break
    if result.reason == "machine too busy":
        pytest.skip(f"other work holds the cores: {result.sentence}")
    return record, result


@pytest.mark.slow
@pytest.mark.alone
def test_a_good_draft_for_a_slow_target_is_faster_and_identical():
    pair = pairs.wide()
    record, result = measured(pair.target, pair.draft, 6, budget=20)
    assert (result.word, result.lossless) == ("faster", "identical"), result.sentence
    assert result.cpu is not None
    assert result.cpu > 1
    assert result.acceptance is not None
    assert result.acceptance.accepted / result.acceptance.offered > 0.8
    assert all(sample.counters is None or sample.counters.accepted > 0 for sample in record.samples)


@pytest.mark.slow
@pytest.mark.alone
def test_a_pruned_draft_is_slower_and_still_identical():
    draft = pairs.pruned_draft()
    _, result = measured(pairs.wide().draft, draft, 6, budget=20)
    assert (result.word, result.lossless) == ("slower", "identical"), result.sentence
    assert result.acceptance is not None
    assert result.acceptance.accepted / result.acceptance.offered < 0.2


@pytest.mark.slow
def test_a_target_against_itself_without_a_spec_type_did_not_speculate():
    small = pairs.small()
    record = measure_speed(plan(small.target, small.target, spec_type="none"), 2)
    assert record.silence is not None
    assert record.silence.cause == "no_spec_type"
    assert speed_result(record).word == "did not speculate"


def test_a_draft_of_another_vocabulary_is_refused_before_any_server_starts(monkeypatch):
    def start(*_args, **_options):
        raise AssertionError("a server was started")

    monkeypatch.setattr("draftmill.measurement.arms.Server", start)
    with pytest.raises(Refused) as error:
        measure_speed(plan(pairs.wide().draft, pairs.qwen3_draft()), 2)
    assert "tokenizer.pair_size" in {refusal.code for refusal in error.value.refusals}


@pytest.mark.slow
def test_both_routes_agree_on_a_draft_that_is_always_right():
    small = pairs.small()
    counted = acceptance_result(measure_by_counters(plan(small.target, small.draft)))
    exact = acceptance_result(measure_token_exact(plan(small.target, small.draft)))
    for result in (counted, exact):
        assert result.figures is not None
        share = result.figures.pooled[Definition.ACCEPTED_PER_OFFERED].value
        assert share is not None
        assert share > 0.8


@pytest.mark.slow
@pytest.mark.stock
def test_another_engine_gives_the_same_text_in_another_regime():
    small = pairs.small()
    ours, theirs = (
        measure_speed(plan(small.target, small.draft, provider=provider), 1)
        for provider in (xllamacpp(), debian_server())
    )
    assert ours.samples[-1].tokens == theirs.samples[-1].tokens
    assert theirs.silence is None
    assert {refusal.where for refusal in comparable(ours.regime, theirs.regime)} >= {"backend", "build", "kernel"}
    with pytest.raises(Refused):
        compare(ours, theirs)


@pytest.mark.slow
def test_the_other_route_sees_a_wrong_draft_too():
    small, wrong = pairs.small(), pairs.small_wrong_draft()
    result = acceptance_result(measure_token_exact(plan(small.target, wrong)))
    assert result.figures is not None
    assert result.figures.accepted / result.figures.offered < 0.3


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Processes that compute without end, in bursts as builds and other people's jobs come."""
    program = "import random, time\nwhile True:\n t = time.time() + random.random()\n while time.time() < t: pass\n"
    program += " time.sleep(random.random() / 2)\n"
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize(("draft", "wrong"), [("small", "slower"), ("wrong", "faster")])
def test_a_machine_under_load_never_gives_the_wrong_sign(draft, wrong):
    small = pairs.small()
    chosen = small.draft if draft == "small" else pairs.small_wrong_draft()
    words = []
    with load(4):
        for _ in range(5):
            record = measure_speed(plan(small.target, chosen, budget=12, warm_up=0), 6)
            words.append((speed_result(record).word, speed_result(record, PATIENT).word))
    # With the rule against waiting, and without it: the interval alone has to be wide enough.
    assert all(word != wrong for both in words for word in both), words
    assert sum(word == "no verdict" for word, _ in words) > len(words) / 2, words


def test_our_own_prompts_fit_the_default_context():
    prompts = load_prompts(Path(__file__).resolve().parents[2] / "config" / "prompts")
    assert max(len(prompt.text) for prompt in prompts.prompts) < 2048 * 2
