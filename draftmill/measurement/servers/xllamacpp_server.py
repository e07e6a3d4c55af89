"""llama-server out of the xllamacpp package: `python -m draftmill.measurement.servers.xllamacpp_server --model M.gguf`.

Takes the flags of a llama-server of after June 2026 that the mill gives, by one name each, and serves llama.cpp's own
HTTP until SIGTERM. It refuses, as argparse does, what it does not know. Like llama-server it serves without
speculation when the draft does not fit.
"""

import argparse
import signal
import sys
import threading
from typing import Any

_SPEC_TYPES = ("none", "draft-simple", "draft-dflash")
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def _parser() -> argparse.ArgumentParser:
    # One option a line, whatever the terminal: the mill reads this help.
    parser = argparse.ArgumentParser(
        prog="xllamacpp_server",
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, width=120),
    )
    add = parser.add_argument
    add("--model", required=True, metavar="FNAME")
    add("--ctx-size", type=int, required=True, metavar="N")
    add("--threads", type=int, required=True, metavar="N")
    add("--parallel", type=int, default=1, metavar="N")
    add("--host", default="127.0.0.1", metavar="HOST")
    add("--port", type=int, default=0, metavar="PORT")
    add("--metrics", action="store_true")
    add("--verbosity", type=int, default=3, metavar="N")
    add("--cache-ram", type=int, default=0, metavar="N")
    add("--fit", choices=("on", "off"), default="off", metavar="[on|off]")
    add("--gpu-layers", type=int, default=0, metavar="N")
    add("--cache-type-k", choices=_CACHE_TYPES, default="f16", metavar="TYPE")
    add("--cache-type-v", choices=_CACHE_TYPES, default="f16", metavar="TYPE")
    add("--spec-draft-model", metavar="FNAME")
    add("--spec-draft-n-max", type=int, metavar="N")
    add("--spec-draft-n-min", type=int, metavar="N")
    add("--spec-draft-p-min", type=float, metavar="P")
    add("--spec-draft-threads", type=int, metavar="N")
    add("--spec-draft-ngl", type=int, default=0, metavar="N")
    add("--spec-draft-type-k", choices=_CACHE_TYPES, default="f16", metavar="TYPE")
    add("--spec-draft-type-v", choices=_CACHE_TYPES, default="f16", metavar="TYPE")
    add("--spec-type", choices=_SPEC_TYPES, default="none", metavar=",".join(_SPEC_TYPES))
    return parser


def _parameters(given: argparse.Namespace, x: Any) -> Any:
    """`given` as xllamacpp's CommonParams."""

    def cache_type(name: str) -> Any:
        return x.ggml_type[f"GGML_TYPE_{name.upper()}"]

    parameters = x.CommonParams()
    parameters.model.path = given.model
    parameters.n_ctx = given.ctx_size
    parameters.cpuparams.n_threads = given.threads
    parameters.cpuparams_batch.n_threads = given.threads
    parameters.n_parallel = given.parallel
    parameters.hostnames = [given.host]
    parameters.port = given.port
    parameters.endpoint_metrics = given.metrics
    parameters.endpoint_slots = True
    parameters.ui = False
    parameters.verbosity = given.verbosity
    parameters.cache_ram_mib = given.cache_ram
    parameters.fit_params = given.fit == "on"
    parameters.n_gpu_layers = given.gpu_layers
    parameters.cache_type_k = cache_type(given.cache_type_k)
    parameters.cache_type_v = cache_type(given.cache_type_v)
    if given.spec_draft_model:
        speculative, draft = parameters.speculative, parameters.speculative.draft
        speculative.types = [x.common_speculative_type[_enum(given.spec_type)]]
        draft.mparams.path = given.spec_draft_model
        draft.n_max, draft.n_min, draft.p_min = given.spec_draft_n_max, given.spec_draft_n_min, given.spec_draft_p_min
        draft.n_gpu_layers = given.spec_draft_ngl
        draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = given.spec_draft_threads or given.threads
        draft.cache_type_k = cache_type(given.spec_draft_type_k)
        draft.cache_type_v = cache_type(given.spec_draft_type_v)
    return parameters


def _enum(spec_type: str) -> str:
    return f"COMMON_SPECULATIVE_TYPE_{spec_type.replace('-', '_').upper()}"


def main() -> None:
    parser = _parser()
    given = parser.parse_args()
    numbers = (given.spec_draft_n_max, given.spec_draft_n_min, given.spec_draft_p_min)
    if given.spec_draft_model and None in numbers:
        parser.error("a draft needs --spec-draft-n-max, --spec-draft-n-min and --spec-draft-p-min")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    import xllamacpp

    try:
        server = xllamacpp.Server(_parameters(given, xllamacpp))
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    stop.wait()


if __name__ == "__main__":
    main()
