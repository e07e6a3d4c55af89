"""Job `convert`: a checkpoint and a tokenizer to one GGUF of full-width weights.

Inputs: model (config.json, safetensors), tokenizer (its files). Parameters: converter ("native" or "stock"), outtype
("f16", "bf16", "f32"), provenance (fields of `draftmill.gguf.metadata.Provenance`), file_name; with stock: optional
stock_converter (path of convert_hf_to_gguf.py) and stock_python, else the image's DRAFTMILL_STOCK_CONVERTER and
DRAFTMILL_STOCK_PYTHON, and timeout_s; with native: optional threads. Outputs: <file_name>; convert.log when the stock
converter failed. Facts: converter, tensors, weights, bytes.
"""

from pathlib import Path

from pydantic import ValidationError

import draftmill
from draftmill.gguf.convert_native import OUTTYPES, Conversion, convert_native
from draftmill.gguf.convert_stock import convert_stock
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stock_run import TIMEOUT_S
from draftmill.outcome import BadConfiguration
from jobs.contract import Job, main
from jobs.stock import stock_converter


def work(job: Job) -> None:
    converter, outtype = job.parameters["converter"], job.parameters["outtype"]
    if outtype not in OUTTYPES:
        raise BadConfiguration(f"Output type {outtype!r} is unknown; choose one of {OUTTYPES}.", code="convert.outtype")
    try:
        provenance = Provenance.model_validate(job.parameters["provenance"])
    except ValidationError as error:
        raise BadConfiguration(f"Parameter provenance: {error}", code="convert.provenance") from None
    out = job.out / _file_name(job.parameters["file_name"])
    if converter == "native":
        done = _native(job, out, outtype, provenance)
    elif converter == "stock":
        done = _stock(job, out, outtype, provenance)
    else:
        raise BadConfiguration(f"Converter {converter!r} is unknown; choose native or stock.", code="convert.converter")
    job.fact("converter", done.converter)
    job.fact("tensors", done.tensors)
    job.fact("weights", done.weights)
    job.fact("bytes", done.size)


def _native(job: Job, out: Path, outtype: str, provenance: Provenance) -> Conversion:
    from importlib.metadata import version

    job.tool("draftmill", draftmill.__version__)
    job.tool("gguf", version("gguf"))
    return convert_native(
        job.input("model"),
        job.input("tokenizer"),
        out,
        outtype=outtype,
        provenance=provenance,
        progress=job.progress,
        threads=job.parameters.get("threads"),
    )


def _stock(job: Job, out: Path, outtype: str, provenance: Provenance) -> Conversion:
    return convert_stock(
        job.input("model"),
        job.input("tokenizer"),
        out,
        outtype=outtype,
        provenance=provenance,
        script=stock_converter(job),
        log=job.out / "convert.log",
        timeout_s=job.parameters.get("timeout_s") or TIMEOUT_S,
        progress=job.progress,
    )


def _file_name(name: str) -> str:
    if not name or Path(name).name != name or name.startswith(".") or not name.endswith(".gguf"):
        raise BadConfiguration(f"{name!r} is no plain .gguf file name.", code="convert.file_name")
    return name


if __name__ == "__main__":
    main("convert", work)
