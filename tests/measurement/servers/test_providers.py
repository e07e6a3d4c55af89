"""What ran is what the live process says, and the real engine behind its typed HTTP."""

import contextlib
import hashlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmill.measurement.servers.answers import Metrics, Slot, read_metrics
from draftmill.measurement.servers.client import Client
from draftmill.measurement.servers.did_speculate import did_speculate
from draftmill.measurement.servers.flags import Drafting, Settings, read_help
from draftmill.measurement.servers.live_process import Mapped, mapped_code
from draftmill.measurement.servers.providers import (
    Provider,
    llama_server,
    observe,
    read_devices,
    read_variant,
    xllamacpp,
)
from draftmill.measurement.servers.server import Server, ServerError
from draftmill.outcome import BadConfiguration, Refused, Unavailable
from tests.support.inputs import smollm2_gguf
from tests.support.mock_server import Misbehaviour, mock_provider, mock_settings
from tests.support.stock import debian_server
from tests.support.waiting import GUARD_S, until

TOKENS = 16


def real_settings(spec_type: str, draft: Path | None = None) -> Settings:
    model = smollm2_gguf()
    drafting = Drafting(draft or model, n_max=4, n_min=0, p_min=0.0, spec_type=spec_type)
    return Settings(model, context=256, threads=1, draft=drafting)


def test_the_real_engine_speculates_with_a_spec_type_and_says_so():
    with Server(xllamacpp(), real_settings("draft-simple"), run="test") as server:
        before = server.client.slots()
        sample = server.client.completion("The capital of France is", TOKENS, seed=1)
        metrics = server.client.metrics()
        told = did_speculate(before, sample, server.log)
        what = server.what
    assert before[0].speculative is True
    assert told.happened
    # A model that drafts for itself is always right: rounds of 5 tokens after the first, three of them.
    assert (sample.timings.draft_n, sample.timings.draft_n_accepted) == (12, 12)
    assert (metrics.drafts, metrics.drafted_tokens, metrics.accepted_tokens) == (3, 12, 12)
    assert metrics.accepted_per_position == (3, 3, 3, 3)
    assert len(sample.tokens) == sample.timings.predicted_n == TOKENS
    assert sample.content.startswith(" Paris")
    assert (sample.stop_type, sample.timings.prompt_n, sample.timings.cache_n) == ("limit", 5, 0)
    assert sample.wall_s * 1000 > sample.timings.predicted_ms > 0

    program = xllamacpp().program
    assert what.digest == hashlib.sha256(program.read_bytes()).hexdigest()
    assert what.build.startswith("xllamacpp 20")
    assert any("libgomp" in library.path for library in what.libraries)
    assert what.devices and what.devices[0].startswith("CPU")
    assert what.variant and "AVX2" in what.variant
    assert what.nodes == ()
    assert what.arguments[-4:] == ("--host", "127.0.0.1", "--port", "0")


def test_the_real_engine_with_a_draft_and_no_spec_type_did_not_speculate():
    with Server(xllamacpp(), real_settings("none"), run="test") as server:
        before = server.client.slots()
        sample = server.client.completion("The capital of France is", TOKENS, seed=1)
        told = did_speculate(before, sample, server.log)
    assert sample.timings.draft_n is None
    assert (told.happened, told.cause) == (False, "no_spec_type")


@pytest.fixture
def other_vocabulary(tmp_path) -> Iterator[Path]:
    """SmolLM2 with its add-BOS flag turned, which llama-server compares and nothing else does."""
    key = b"tokenizer.ggml.add_bos_token" + (7).to_bytes(4, "little")
    data = bytearray(smollm2_gguf().read_bytes())
    at = data.index(key) + len(key)
    assert data[at] == 0
    data[at] = 1
    path = tmp_path / "other.gguf"
    path.write_bytes(data)
    yield path
    path.unlink()


def test_the_real_engine_drops_a_draft_of_another_vocabulary_and_the_cause_is_told(other_vocabulary):
    with Server(xllamacpp(), real_settings("draft-simple", other_vocabulary), run="test") as server:
        before = server.client.slots()
        sample = server.client.completion("The capital of France is", TOKENS, seed=1)
        told = did_speculate(before, sample, server.log)
        assert server.client.health() == "ready"
    assert (told.happened, told.cause) == (False, "vocabularies")
    assert "not compatible" in told.evidence


@pytest.mark.stock
@pytest.mark.parametrize(("spec_type", "cause"), [("draft-simple", None), ("none", "no_spec_type")])
def test_the_stock_server_is_told_and_understood_alike(spec_type, cause):
    provider = debian_server()
    with Server(provider, real_settings(spec_type), run="test") as server:
        before = server.client.slots()
        sample = server.client.completion("The capital of France is", TOKENS, seed=1)
        told = did_speculate(before, sample, server.log)
        what = server.what
    assert told.cause == cause
    assert sample.timings.draft_n_accepted == (None if cause else sample.timings.draft_n)
    assert sample.content.startswith(" Paris")
    assert what.digest == hashlib.sha256(provider.program.read_bytes()).hexdigest()
    assert what.build.startswith("b")
    assert any("libllama.so" in library.path and library.sha256 for library in what.libraries)
    assert what.variant
    assert any(device.startswith("CPU") for device in what.devices)


@pytest.mark.parametrize("provider", [xllamacpp, pytest.param(debian_server, marks=pytest.mark.stock)])
def test_the_real_engine_tells_why_it_did_not_start(tmp_path, provider):
    (tmp_path / "broken.gguf").write_bytes(b"no model")
    broken = Settings(tmp_path / "broken.gguf", context=256, threads=1)
    with pytest.raises(ServerError) as error, Server(provider(), broken, run="test"):
        pass
    assert error.value.code == "server.start"
    assert "magic" in error.value.log or "failed to load" in error.value.log


def test_the_child_lists_its_flags_as_a_llama_server_does_and_refuses_others():
    provider = xllamacpp()
    found = read_help(provider.command, provider.digest(), {})
    assert found["--spec-type"].choices == {"none", "draft-simple", "draft-dflash"}
    assert found.has("--spec-draft-n-max")
    settings = Settings(smollm2_gguf(), context=256, threads=1, extra=("--no-such-flag",))
    with pytest.raises(Refused, match="does not take it"), Server(provider, settings, run="test"):
        pass


def test_a_named_server_runs_with_its_own_libraries_and_prefix(tmp_path):
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    library = tmp_path / "lib"
    provider = llama_server(
        program,
        library_path=(library, tmp_path),
        extra_environment={"HIP_VISIBLE_DEVICES": "0"},
        prefix=("/ld.so", "-x"),
    )
    assert provider.command == ("/ld.so", "-x", str(program))
    assert provider.environment == {"LD_LIBRARY_PATH": f"{library}:{tmp_path}", "HIP_VISIBLE_DEVICES": "0"}
    assert llama_server(program).command == (str(program),)
    program.chmod(0o644)
    with pytest.raises(BadConfiguration, match="no executable file"):
        llama_server(program)


def loader() -> str:
    maps = Path("/proc/self/maps").read_text()
    return next(line.split()[-1] for line in maps.splitlines() if "/ld-" in line)


def test_a_server_behind_a_loader_is_told_from_its_maps():
    # As a Debian engine runs on an older host: /proc/PID/exe is the loader, the engine is what it mapped.
    plain = mock_provider()
    behind = Provider("mock", plain.program, (loader(), str(plain.program), plain.command[1]), plain.environment)
    with Server(behind, mock_settings(), run="test") as server:
        assert Path(f"/proc/{server.pid}/exe").resolve() == Path(loader()).resolve()
        assert Path(server.what.executable).resolve() == plain.program
        assert server.what.build == "b1-mock"


def test_a_prefix_that_does_not_become_the_server_is_refused():
    plain = mock_provider()
    wrapped = Provider("mock", plain.program, ("/bin/sh", "-c", '"$@"; true', "sh", *plain.command), plain.environment)
    with (
        pytest.raises(ServerError, match="by exec") as error,
        Server(wrapped, mock_settings(), run="test", start_deadline_s=1),
    ):
        pass
    assert error.value.code == "server.start_deadline"


def test_another_program_than_the_one_named_is_no_measurement(tmp_path):
    plain = mock_provider()
    other = Provider("mock", Path(shutil.which("true") or "").resolve(), plain.command, plain.environment)
    with pytest.raises(Unavailable) as error, Server(other, mock_settings(), run="test"):
        pass
    assert error.value.code == "providers.other_program"


def test_a_program_replaced_while_it_runs_is_told(tmp_path):
    copy = tmp_path / "sleep"
    shutil.copy(shutil.which("sleep") or "", copy)
    with subprocess.Popen([copy, "600"]) as process:
        provider = Provider("sleep", copy, (str(copy),))
        try:
            # The exec closes the pipe that Popen waits on a moment before the program is mapped.
            until(lambda: any(mapped.path == str(copy) for mapped in mapped_code(process.pid)), "it is mapped")
            assert observe(provider, process.pid, "b1", "").digest == provider.digest()
            (tmp_path / "new").write_bytes(copy.read_bytes())
            (tmp_path / "new").rename(copy)
            with pytest.raises(Unavailable, match="replaced"):
                observe(provider, process.pid, "b1", "")
        finally:
            process.kill()


def test_devices_are_read_from_both_forms_of_the_log():
    listed = "0.1 I cmn  p: device_info:\n0.1 I cmn  p:   - CPU     : Some CPU (7 MiB, 6 MiB free)\n"
    other = "0.1 I loader: - kv : thing\n0.1 I loader:   - list : thing\n"
    used = "load: using device Vulkan0 (Radeon 890M (RADV)) (0000:c5:00.0) - 900 MiB free\n"
    assert read_devices(listed + other) == ("CPU: Some CPU",)
    assert read_devices(listed + used) == ("Vulkan0 (Radeon 890M (RADV)) (0000:c5:00.0)",)
    assert read_devices(other) == ()


def test_the_kernel_variant_is_the_dispatched_library_and_the_features_that_are_on():
    log = "system_info: n_threads = 1 | CPU : SSE3 = 1 | AVX512 = 0 | AVX2 = 1 | \n"
    zen4 = [Mapped("/usr/lib/ggml/backends0/libggml-cpu-zen4.so", "0" * 64)]
    assert read_variant(log, zen4) == "zen4 SSE3 AVX2"
    assert read_variant(log, []) == "SSE3 AVX2"
    assert read_variant("", []) is None


def test_counters_that_a_server_does_not_have_are_none_and_not_zero():
    text = """# HELP llamacpp:n_decode_total calls
llamacpp:n_decode_total 7
llamacpp:spec_decode_num_drafts_total 0
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="10"} 1
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 5
other:thing 3
"""
    metrics = read_metrics(text)
    values = {"n_decode_total": 7.0, "spec_decode_num_drafts_total": 0.0}
    assert metrics == Metrics(None, 7.0, 0.0, None, None, (5.0, 1.0), values)


SAMPLE = {
    "tokens": [1],
    "content": "a",
    "stop_type": "limit",
    "truncated": False,
    "timings": {"prompt_n": 1, "prompt_ms": 1.0, "predicted_n": 1, "predicted_ms": 1.0},
}


class Scripted:
    """A socket that answers every request with the same bytes and closes."""

    def __init__(self, answer: bytes) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, args=(answer,), daemon=True).start()

    def _serve(self, answer: bytes) -> None:
        with self._listening, self._listening.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(answer)


def reply(body: bytes, length: int | None = None, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length or len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (reply(json.dumps(SAMPLE).encode()), None),
        (reply(json.dumps(SAMPLE).encode(), length=1000), "client.unreachable"),  # the server died half-way
        (reply(json.dumps(SAMPLE).encode(), status="500 Error"), "client.status"),
        (reply(json.dumps(SAMPLE | {"timings": {}}).encode()), "client.answer"),
        (reply(json.dumps(SAMPLE | {"tokens": None}).encode()), "client.answer"),
        (reply(json.dumps([SAMPLE]).encode()), "client.answer"),
        (reply(b"[" * 100_000), "client.answer"),
        (b"SSH-2.0\r\n", "client.unreachable"),
    ],
)
def test_only_a_whole_answer_in_the_right_form_is_taken(answer, code):
    client = Client(Scripted(answer).port, timeout_s=GUARD_S)
    if code is None:
        assert client.completion("a", 1, seed=1).timings.draft_n is None
        return
    with pytest.raises(Unavailable) as error:
        client.completion("a", 1, seed=1)
    assert error.value.code == code


def test_an_answer_without_end_is_cut_at_the_timeout():
    # A byte now and then keeps each read alive: the limit is on the whole.
    class Dripping(Scripted):
        def _serve(self, answer: bytes) -> None:
            with self._listening, self._listening.accept()[0] as connection, contextlib.suppress(OSError):
                connection.sendall(reply(b"x", length=1000))
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.05)

    with pytest.raises(Unavailable, match="TimeoutError"):
        Client(Dripping(b"").port, timeout_s=0.5).completion("a", 1, seed=1)


def test_an_answer_that_is_too_long_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr("draftmill.measurement.servers.client._MOST_BYTES", 100)
    assert Client(Scripted(reply(b'{"tokens": []}')).port).tokenize("", add_special=False) == []
    long = reply(json.dumps({"tokens": [1] * 100}).encode())
    with pytest.raises(Unavailable, match="or 100 bytes"):
        Client(Scripted(long).port).tokenize("", add_special=False)


def test_a_server_that_does_not_tell_of_its_slots_has_not_been_seen_to_speculate():
    client = Client(Scripted(reply(json.dumps(SAMPLE | {"timings": SAMPLE["timings"] | {"draft_n": 4}}).encode())).port)
    sample = client.completion("a", 1, seed=1)
    for slots in ([], [Slot(0, 512, None, False)]):
        assert did_speculate(slots, sample, "").cause == "unknown"
    assert did_speculate([Slot(0, 512, True, False)], sample, "").happened


def test_an_answer_that_is_not_llama_servers_is_told():
    with Server(mock_provider(Misbehaviour(garbage_at=0)), mock_settings(), run="test") as server:
        with pytest.raises(Unavailable, match="/completion") as error:
            server.client.completion("a", 4, seed=1)
        assert error.value.code == "client.answer"


def test_nobody_there_is_unreachable():
    with pytest.raises(Unavailable) as error:
        Client(1).health()
    assert error.value.code == "client.unreachable"


def test_the_rounds_of_the_mock_add_up():
    # 10 tokens, at most 4 drafted, accepted 2 then 0 by turns: 1 + 3 + 1 + 3 + 1, and the last without a draft.
    # Offered: min(4, 8), min(4, 5), min(4, 4), min(4, 1).
    with Server(mock_provider(Misbehaviour(accepts=(2, 0))), mock_settings(), run="test") as server:
        sample = server.client.completion("a", 10, seed=1)
        metrics = server.client.metrics()
    assert (sample.timings.draft_n, sample.timings.draft_n_accepted) == (13, 4)
    assert (metrics.drafts, metrics.accepted_per_position) == (4, (2, 2, 0, 0))
    assert sys.executable in server.what.arguments[0]
