"""Job `dflash_convert`: a DFlash draft from any of its three forms to any other.

Inputs: draft (a checkpoint's or package's folder, or a folder with one GGUF file), for a GGUF also target (the target's
config.json and tokenizer, or a folder with its GGUF file). Parameters: to ("gguf", "hf", "q4nx"), entry (owner/name, by
which files are named); optional outtype (of a GGUF), encoding (of a package), causal, provenance (fields of
`draftmill.gguf.metadata.Provenance`), converter ("native", or "stock" to have llama.cpp's own write the vocabulary of
the target's folder, with stock_converter and stock_python as job `convert` has them). Outputs: <name>.gguf and
<name>.conversion.json, or the folder's files. Facts: conversion (the whole account), exact.
"""

from dataclasses import replace
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import draftmill
from draftmill.dflash.conversion.account import Account, account_path
from draftmill.dflash.conversion.convert import ENCODINGS, convert
from draftmill.dflash.conversion.form import Form
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.naming import gguf_name
from draftmill.outcome import BadConfiguration
from draftmill.whole_file import write_whole
from jobs.contract import Job, main
from jobs.stock import stock_converter

OUT = "draft"
CONVERTERS = {"native": False, "stock": True}
"""Name -> whether it is llama.cpp's."""


def work(job: Job) -> None:
    parameters = job.parameters
    to = _one_of("to", parameters.get("to"), {form.value: form for form in Form})
    encoding = parameters.get("encoding")
    entry = parameters.get("entry")
    if not isinstance(entry, str):
        raise BadConfiguration(f"Parameter entry is {entry!r}; give owner/name.", code="dflash_convert.entry")
    try:
        given = parameters.get("provenance")
        provenance = Provenance.model_validate(given) if given else None
    except ValidationError as error:
        raise BadConfiguration(f"Parameter provenance: {error}", code="dflash_convert.provenance") from None
    target = job.request.inputs.get("target")
    for package in ("numpy", "gguf", "tokenizers"):
        job.tool(package, version(package))
    job.tool("draftmill", draftmill.__version__)
    out = job.out / (f"{OUT}.gguf" if to == Form.GGUF else OUT)
    account = convert(
        _only_gguf(job.input("draft")),
        out,
        to,
        target=_only_gguf(target) if target else None,
        converter=stock_converter(job)
        if _one_of("converter", parameters.get("converter", "native"), CONVERTERS)
        else None,
        outtype=parameters.get("outtype") or "auto",
        provenance=provenance,
        encoding=_one_of("encoding", encoding, ENCODINGS) if encoding else None,
        causal=parameters.get("causal"),
        progress=job.progress,
    )
    if to == Form.GGUF:
        account = _named(account, out, entry)
    else:
        for path in sorted(out.iterdir()):
            path.rename(job.out / path.name)
        out.rmdir()
    job.fact("conversion", account.as_json())
    job.fact("exact", account.worst is None)


def _named(account: Account, out: Path, entry: str) -> Account:
    """Gives the file the name that the convention has for it, which says what most weights are stored as."""
    weights: dict[str, int] = {}
    for tensor in account.tensors:
        weights[tensor.target] = weights.get(tensor.target, 0) + prod(tensor.shape)
    name = gguf_name(entry, sum(weights.values()), max(weights, key=lambda label: weights[label]))
    (file,) = account.out
    renamed = replace(account, out=(replace(file, path=name),))
    out.rename(out.with_name(name))
    write_whole(account_path(out.with_name(name), Form.GGUF), renamed.as_bytes())
    account_path(out, Form.GGUF).unlink()
    return renamed


def _only_gguf(folder: Path) -> Path:
    """The folder; its GGUF file where that is all there is of a model."""
    files = sorted(folder.glob("*.gguf"))
    return files[0] if len(files) == 1 and not (folder / "config.json").is_file() else folder


def _one_of(name: str, value: Any, known: dict[str, Any]) -> Any:
    if value not in known:
        raise BadConfiguration(
            f"Parameter {name} is {value!r}; choose one of {', '.join(known)}.", code=f"dflash_convert.{name}"
        )
    return known[value]


if __name__ == "__main__":
    main("dflash_convert", work)
