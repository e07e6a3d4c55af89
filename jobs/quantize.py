"""Job `quantize`: one GGUF of full-width weights to one of a smaller type.

Inputs: gguf (a folder with one .gguf file). Parameters: type ("Q4_K_M"), quantizer ("native" or "stock"), name (of the
output, without .gguf), optional stock_quantizer (path of llama-quantize; else PATH is searched), threads, timeout_s.
Outputs: <name>.gguf. Facts: type, fallbacks [{tensor, wanted, got, why}], and with native tensor_types and fast_types.
"""

from importlib.metadata import version
from pathlib import Path

from draftmill.gguf.ggml_library import PACKAGE, load_library
from draftmill.gguf.quantize_native import quantize_native
from draftmill.gguf.quantize_stock import TIMEOUT_S, find_quantizer, quantize_stock
from draftmill.outcome import BadConfiguration, Refusal, Refused
from jobs.contract import Job, main


def work(job: Job) -> None:
    source, target = _source(job.input("gguf")), job.out / f"{_name(job.parameters['name'])}.gguf"
    kind, quantizer = job.parameters["type"], job.parameters["quantizer"]
    job.fact("type", kind)
    if quantizer == "native":
        _native(job, source, target, kind)
    elif quantizer == "stock":
        _stock(job, source, target, kind)
    else:
        raise BadConfiguration(
            f"Quantizer {quantizer!r} is unknown; choose native or stock.", code="quantize.quantizer"
        )


def _native(job: Job, source: Path, target: Path, kind: str) -> None:
    library = load_library()
    job.tool(PACKAGE, library.version, library.digest())
    done = quantize_native(source, target, kind, threads=job.parameters.get("threads"), progress=job.progress)
    if done.fast:
        job.tool("numba", version("numba"))
    job.fact("fallbacks", [fallback.as_json() for fallback in done.fallbacks])
    job.fact("tensor_types", done.types)
    job.fact("fast_types", list(done.fast))


def _stock(job: Job, source: Path, target: Path, kind: str) -> None:
    path = job.parameters.get("stock_quantizer")
    quantizer = find_quantizer([path] if path else None)
    done = quantize_stock(
        quantizer,
        source,
        target,
        kind,
        threads=job.parameters.get("threads") or 2,
        timeout_s=job.parameters.get("timeout_s") or TIMEOUT_S,
        progress=job.progress,
    )
    job.log(done.log)
    job.tool("llama-quantize", done.version or "unknown", quantizer.digest)
    job.fact("fallbacks", [fallback.as_json() for fallback in done.fallbacks])


def _source(folder: Path) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise Refused(
            Refusal(
                "quantize.one_gguf",
                "gguf",
                [path.name for path in found],
                "one .gguf file",
                "The input folder has to hold exactly one GGUF file; give the folder that the convert job wrote.",
            )
        )
    return found[0]


def _name(name: str) -> str:
    if not name or Path(name).name != name or name.startswith("."):
        raise BadConfiguration(f"{name!r} is no plain file name; give one without folders.", code="quantize.name")
    return name


if __name__ == "__main__":
    main("quantize", work)
