"""check: is a finished GGUF what it should be? Every check runs, and all that speaks against the product is said.

Inputs: model (config.json, weights), tokenizer, source (folder with the unquantized GGUF), product (folder with the
GGUF to check). Parameter: type ("Q4_K_M"). Output: check.json, with each check's measured values, limits and verdict;
it is written for a refused product too. Facts: check (verdict by check), size, lowest_cosine.
"""

import json
from importlib.metadata import version
from pathlib import Path

from draftmill.gguf.ggml_library import PACKAGE, load_library
from draftmill.gguf.product_check import Inputs, check_product
from draftmill.outcome import BadConfiguration, Refused
from draftmill.whole_file import write_whole
from jobs.contract import Job, main


def work(job: Job) -> None:
    library = load_library()
    job.tool(PACKAGE, library.version, library.digest())
    for name in ("tokenizers", "gguf"):
        job.tool(name, version(name))
    product_type = job.parameters.get("type")
    if not isinstance(product_type, str):
        raise BadConfiguration(f"parameter type is {product_type!r}; give the product's, as Q4_K_M", code="check.type")
    inputs = Inputs(
        product=_only_gguf(job.input("product")),
        source=_only_gguf(job.input("source")),
        model=job.input("model"),
        tokenizer=job.input("tokenizer"),
        type=product_type,
    )
    check = check_product(inputs, job.progress)
    write_whole(job.out / "check.json", json.dumps(check.as_json(), indent=1, ensure_ascii=False) + "\n")
    job.fact("check", {result.name: result.verdict for result in check.results})
    for result in check.results:
        for name in ("file_size", "lowest_cosine"):
            if name in result.measured:
                job.fact(name, result.measured[name])
    if check.refusals:
        raise Refused(*check.refusals)


def _only_gguf(folder: Path) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if len(found) != 1:
        raise BadConfiguration(
            f"{folder.name} holds {[path.name for path in found]}; one GGUF is checked at a time", code="check.files"
        )
    return found[0]


if __name__ == "__main__":
    main("check", work)
