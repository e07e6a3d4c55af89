"""A server that speaks llama-server's HTTP, knows what it would say at once, and misbehaves on demand.

As a program it takes a llama-server's flags and the variable MOCK, the JSON form of `Misbehaviour`. Its text is a
function of the prompt alone; with a draft, round after round accepts what `accepts` lists, cyclically, cut as
llama-server cuts it: a round never drafts beyond the token before the budget's last.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import Provider

HELP = """----- common params -----

-h,    --help                           print usage and exit
-m,    --model FNAME                    the model to serve
-c,    --ctx-size N                     tokens of context
-t,    --threads N                      threads to compute with
-np,   --parallel N                     how many slots
--host HOST                             where to listen
--port PORT                             the port, 0 for any
--metrics                               counters for Prometheus
--slots, --no-slots                     whether slots are told
-md,   --model-draft, --spec-draft-model FNAME
                                        the draft
--spec-draft-n-max N                    most tokens a round
--spec-draft-n-min N                    fewest tokens a round
--spec-draft-p-min, --draft-p-min P     least probability
--spec-type none,draft-simple,draft-mtp
                                        how to speculate
--draft, --draft-n, --draft-max N       the argument has been removed, there is another
"""

VOCABULARIES = "E common_speculative: the target and draft vocabs are not compatible"
NO_ROLL_BACK = "W srv load_model: speculative decoding not supported by this context"
INIT_ERROR = "E srv load_model: failed to initialize speculative decoding context"


@dataclass(frozen=True)
class Misbehaviour:
    """What the server does wrong; the defaults do nothing wrong. Times in ms, factors of the usual time.

    token_ms: time of a target's token; round_cost: that of a round with drafts, in target tokens; noise: greatest
    random share of the time added; first: factor of the first request; drift: share added at every further
    request, drift_drafting: the same where the server drafts.
    missing_rounds: its metrics know nothing of speculation, as before August 2026; miscounts: drafts that its metrics
    count and its answers do not.
    crash_at, hang_at, garbage_at: the request (from 0) at which it does so; an endless log begins at the first.
    `different_at`: position of the token that differs with a draft; asked for the likeliest tokens there, the server
    gives its own one, or with `batch_agrees` the other, `gap` nats before the next. `speculation_off` with `init_log`
    is what llama-server does with a draft that it cannot use. `exit_loading`: it listens, then ends, as with a broken
    model.
    """

    token_ms: float = 0
    round_cost: float = 1.5
    accepts: tuple[int, ...] = (99,)
    noise: float = 0
    first: float = 1
    drift: float = 0
    drift_drafting: float = 0
    missing_counters: bool = False
    missing_rounds: bool = False
    miscounts: int = 0
    speculation_off: bool = False
    init_log: str = ""
    different_at: int = -1
    gap: float = 5.0
    batch_agrees: bool = False
    echo_loop: bool = False
    crash_at: int = -1
    hang_at: int = -1
    garbage_at: int = -1
    refuses_to_die: bool = False
    endless_log: bool = False
    loading_ms: float = 0
    never_ready: bool = False
    never_listens: bool = False
    everywhere: bool = False
    exit_at_start: bool = False
    exit_loading: bool = False
    brings_child: bool = False


def mock_provider(misbehaviour: Misbehaviour = Misbehaviour()) -> Provider:
    """The mock as the mill's own provider would be."""
    return Provider(
        name="mock",
        program=Path(sys.executable).resolve(),
        command=(sys.executable, str(Path(__file__).resolve())),
        environment={"MOCK": json.dumps(asdict(misbehaviour)), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


def mock_settings(*, draft: bool = True, spec_type: str = "draft-simple", n_max: int = 4) -> Settings:
    """Settings of a pair that does not exist: the mock opens no file."""
    drafting = Drafting(Path("/draft.gguf"), n_max=n_max, n_min=0, p_min=0.0, spec_type=spec_type) if draft else None
    return Settings(Path("/target.gguf"), context=512, threads=1, draft=drafting)


def expected_tokens(prompt: list[int] | str, count: int) -> list[int]:
    """What a well-behaved mock says after `prompt`."""
    seed = random.Random(json.dumps(prompt))
    return [seed.randrange(5, 1000) for _ in range(count)]


class _Model:
    def __init__(self, argv: list[str], misbehaviour: Misbehaviour) -> None:
        self.does = misbehaviour
        self.model = argv[argv.index("--model") + 1]
        self.drafts = "--spec-draft-model" in argv and argv[argv.index("--spec-type") + 1] == "draft-simple"
        self.drafts = self.drafts and not misbehaviour.speculation_off
        self.n_max = int(argv[argv.index("--spec-draft-n-max") + 1]) if self.drafts else 0
        self.started = time.monotonic()
        self.requests = 0
        self.noise = random.Random(os.getpid())
        self.counters = {"tokens_predicted_total": 0, "n_decode_total": 0}
        self.spec_counters = {
            f"spec_decode_num_{name}_total": 0 for name in ("draft_tokens", "accepted_tokens", "drafts")
        }
        self.positions = [0] * self.n_max
        self.asked: set[tuple[int, ...]] = set()

    def is_ready(self) -> bool:
        return not self.does.never_ready and (time.monotonic() - self.started) * 1000 >= self.does.loading_ms

    def likeliest(self, prompt: list[int]) -> dict[str, Any]:
        asked = next(known for known in self.asked if tuple(prompt[: len(known)]) == known)
        best = expected_tokens(list(asked), len(prompt) - len(asked) + 1)[-1] + self.does.batch_agrees
        top = [{"id": best, "logprob": -0.1}, {"id": 2, "logprob": -0.1 - self.does.gap}]
        return {"completion_probabilities": [{"id": best, "logprob": -0.1, "top_logprobs": top}]}

    def complete(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("n_probs"):
            return self.likeliest(request["prompt"])
        self.asked.add(tuple(request["prompt"]))
        number, self.requests = self.requests, self.requests + 1
        if number == self.does.crash_at:
            signal.raise_signal(signal.SIGSEGV)  # os.kill lets this thread go on and answer when another one takes it
        if self.does.endless_log and number == 0:
            threading.Thread(target=_write_for_ever, daemon=True).start()
        if number == self.does.hang_at:
            time.sleep(3600)
        count, prompt = request["n_predict"], request["prompt"]
        tokens = [7] * count if self.does.echo_loop else expected_tokens(prompt, count)
        if self.drafts and 0 <= self.does.different_at < count:
            tokens[self.does.different_at] += 1
        rounds, plain = self._rounds(count)
        work = len(rounds) * self.does.round_cost + plain
        drift = self.does.drift + self.does.drift_drafting * self.drafts
        factor = (self.does.first if number == 0 else 1) * (1 + drift * number)
        factor *= 1 + self.does.noise * self.noise.random()
        predicted_ms = work * self.does.token_ms * factor
        time.sleep(predicted_ms / 1000)
        timings = {
            "cache_n": 0,
            "prompt_n": len(prompt),
            "prompt_ms": 0.5,
            "predicted_n": count,
            "predicted_ms": max(predicted_ms, 0.001),
        }
        offered, accepted = sum(round[0] for round in rounds), sum(round[1] for round in rounds)
        self._count(count, rounds, plain)
        if offered and not self.does.missing_counters:
            timings |= {"draft_n": offered, "draft_n_accepted": accepted}
        return {
            "content": " ".join(map(str, tokens)),
            "tokens": tokens if request.get("return_tokens") else [],
            "stop_type": "limit",
            "truncated": False,
            "timings": timings,
        }

    def _rounds(self, count: int) -> tuple[list[tuple[int, int]], int]:
        """((offered, accepted) of each round that drafts, tokens that came without a draft)."""
        left, rounds, plain = count - 1, [], 0
        while left > 0:
            offered = min(self.n_max, left - 1)
            if offered <= 0:
                plain, left = plain + 1, left - 1
                continue
            accepted = min(self.does.accepts[len(rounds) % len(self.does.accepts)], offered)
            rounds.append((offered, accepted))
            left -= accepted + 1
        return rounds, plain

    def _count(self, count: int, rounds: list[tuple[int, int]], plain: int) -> None:
        self.counters["tokens_predicted_total"] += count
        self.counters["n_decode_total"] += len(rounds) + plain + 1
        for offered, accepted in rounds:
            self.spec_counters["spec_decode_num_draft_tokens_total"] += offered
            self.spec_counters["spec_decode_num_accepted_tokens_total"] += accepted
            self.spec_counters["spec_decode_num_drafts_total"] += 1 + self.does.miscounts
            for position in range(accepted):
                self.positions[position] += 1

    def metrics(self) -> str:
        silent = self.does.missing_counters or self.does.missing_rounds
        counters = self.counters | ({} if silent else self.spec_counters)
        lines = [f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}" for name, value in counters.items()]
        if not silent:
            name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            lines += [f'{name}{{position="{position}"}} {value}' for position, value in enumerate(self.positions)]
        return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    model: _Model
    # An answer in one piece: otherwise its second half waits for the acknowledgement of the first.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        model = self.model
        if self.path == "/health":
            if model.does.exit_loading:
                os._exit(1)
            loading = {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}
            return self._answer(*((200, {"status": "ok"}) if model.is_ready() else (503, loading)))
        if self.path == "/slots":
            slot = {"id": 0, "n_ctx": 512, "speculative": model.drafts, "is_processing": False}
            return self._answer(200, [slot])
        if self.path == "/props":
            return self._answer(200, {"build_info": "b1-mock", "model_path": model.model, "total_slots": 1})
        if self.path == "/metrics":
            return self._send(200, model.metrics().encode())
        return self._answer(404, {"error": "no such path"})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            return self._answer(200, {"tokens": list(request["content"].encode())})
        if self.path == "/apply-template":
            return self._answer(200, {"prompt": f"<user>{request['messages'][0]['content']}<answer>"})
        if self.model.requests == self.model.does.garbage_at:
            return self._send(200, b"{not json")
        return self._answer(200, self.model.complete(request))

    def _answer(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _write_for_ever() -> None:
    while True:
        sys.stderr.write("noise " * 1000 + "\n")


def main() -> None:
    if "--help" in sys.argv:
        print(HELP)
        return
    does = Misbehaviour(**json.loads(os.environ["MOCK"]))
    if does.exit_at_start:
        sys.exit("error: cannot open the model")
    if does.refuses_to_die:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if does.brings_child and os.fork() == 0:
        signal.pause()
    print(does.init_log, file=sys.stderr, flush=True)
    if does.never_listens:
        signal.pause()
    _Handler.model = _Model(sys.argv, does)
    address = "0.0.0.0" if does.everywhere else "127.0.0.1"
    ThreadingHTTPServer((address, int(sys.argv[sys.argv.index("--port") + 1])), _Handler).serve_forever()


if __name__ == "__main__":
    main()
