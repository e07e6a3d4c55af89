"""The engine in its child process: what it says on real input, and how it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftmill.engine.process import Engine, EngineError
from tests.support.inputs import smollm2_gguf
from tests.support.processes import runs
from tests.support.waiting import until


def test_a_real_model_tokenizes_and_answers():
    # Ids from the model's own tokenizer.json: special tokens have 0..16, digits are cut one by one.
    with Engine(smollm2_gguf()) as engine:
        assert engine.n_tokens == 49152
        assert engine.tokenize(["<|im_end|>", "12", ""]) == [[2], [33, 34], []]
        pieces = engine.pieces()
        assert (pieces[0], pieces[2], pieces[33]) == (b"<|endoftext|>", b"<|im_end|>", b"1")
        prompt = engine.tokenize(["The capital of France is"])[0]
        first, second = (engine.generate(prompt, 1, threads=1) for _ in range(2))
        assert first == second
        assert first.finite
        assert pieces[first.ids[0]] == b" Paris"


def test_every_byte_string_comes_back_whole():
    with Engine(smollm2_gguf(), vocab_only=True) as engine:
        text = 'nul \x00 tab \t emoji \U0001f469\u200d\U0001f4bb quote " backslash \\ \u2028'
        ids = engine.tokenize([text])[0]
        pieces = engine.pieces()
        assert b"".join(pieces[token] for token in ids) == text.encode()


def test_a_file_that_is_no_model_is_refused_with_the_engines_own_reason(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model at all")
    with pytest.raises(EngineError, match="magic") as error, Engine(path):
        pass
    assert error.value.code == "engine.load"


def test_an_abort_in_the_engine_is_an_error_here():
    # A vocabulary alone has no weights to compute with: llama.cpp asserts.
    with Engine(smollm2_gguf(), vocab_only=True) as engine, pytest.raises(EngineError, match="GGML_ASSERT") as error:
        engine.generate([1, 2], 1)
    assert error.value.code == "engine.crashed"


def test_a_request_that_takes_too_long_ends_the_child():
    with Engine(smollm2_gguf(), vocab_only=True) as engine:
        engine._timeout_s = 0.3
        os.kill(engine._process.pid, signal.SIGSTOP)
        with pytest.raises(EngineError, match="took more than") as error:
            engine.pieces()
        assert error.value.code == "engine.timeout"
        assert engine._process.returncode == -signal.SIGKILL


def test_leaving_the_block_by_an_exception_leaves_no_process():
    with pytest.raises(ZeroDivisionError), Engine(smollm2_gguf(), vocab_only=True) as engine:
        _ = 1 / 0
    assert not runs(engine._process.pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_killed_parent_takes_a_busy_child_with_it():
    program = (
        "from draftmill.engine.process import Engine\n"
        "from tests.support.inputs import smollm2_gguf\n"
        "with Engine(smollm2_gguf()) as engine:\n"
        "    print(engine._process.pid, flush=True)\n"
        "    engine.generate([1], 500)\n"
    )
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert runs(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until(lambda: not runs(child), "the child ends with its parent")


def test_a_child_that_starts_after_its_parents_death_ends_by_itself():
    # Process 1 is alive and not the child's parent: what a reparented child sees.
    child = subprocess.run(
        [sys.executable, "-m", "draftmill.engine.child", "1"],
        input='{"do": "load", "path": "/nonexistent", "vocab_only": true}\n',
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout) == (1, "")
