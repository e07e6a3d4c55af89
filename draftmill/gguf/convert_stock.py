"""Conversion by llama.cpp's own convert_hf_to_gguf.py as a subprocess: any model it knows, its words kept.

What it writes is then given the same keys of origin as the native converter's output (see `metadata`).
"""

from pathlib import Path

from draftmill.gguf.convert_native import CONFIG_LIMIT, OUTTYPES, Conversion
from draftmill.gguf.header import read_header
from draftmill.gguf.merged_folder import merged_folder
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stamp import stamp
from draftmill.gguf.stock_run import TIMEOUT_S, run_stock
from draftmill.gguf.stock_script import StockScript
from draftmill.intake.bounded_json import read_object
from draftmill.intake.text_config import stated_rows
from draftmill.outcome import BadConfiguration, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.tokenizers.huggingface import read_tokenizer
from draftmill.whole_file import whole_file


def convert_stock(
    model: Path,
    tokenizer: Path,
    out: Path,
    *,
    outtype: str,
    provenance: Provenance,
    script: StockScript,
    log: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = silent,
) -> Conversion:
    """Writes `out` from the folders `model` and `tokenizer`; `log`: where the converter's own words go when it fails.

    Raises Refused for an input that it cannot take, BadConfiguration when it does not run here, Temporary after
    `timeout_s` or when the system ended it, MillError with its last lines otherwise. Nothing is left at `out` then.
    """
    if outtype not in OUTTYPES:
        raise BadConfiguration(f"Output type {outtype!r} is unknown; choose one of {OUTTYPES}.", code="convert.outtype")
    config = read_object(model / "config.json", "config.json", CONFIG_LIMIT)
    _check_tokenizer(tokenizer, stated_rows(config))
    raw = out.with_name("converted.partial")
    try:
        # The converter decides some things by the folder's name, which has to be the repository's.
        with merged_folder(model, tokenizer, provenance.name) as folder:
            run_stock(script, folder, raw, "--outtype", outtype, log=log, timeout_s=timeout_s, progress=progress)
        header = read_header(raw)
        with whole_file(out) as beside:
            written = stamp(raw, beside, provenance=provenance, converter=script.name, model=model, config=config)
    finally:
        raw.unlink(missing_ok=True)
    return Conversion(script.name, len(header.tensors), written.weights, written.size)


def _check_tokenizer(folder: Path, rows: object) -> None:
    """Before the converter starts: its own message depends on the version of transformers."""
    if not (folder / "tokenizer.json").is_file():
        if (folder / "tokenizer.model").is_file():
            return
        raise Refused(
            Refusal(
                "convert.tokenizer_missing",
                "tokenizer.json",
                "absent",
                "tokenizer.json or tokenizer.model",
                "The model comes without its tokenizer; name a donor with --tokenizer-from.",
            )
        )
    highest = read_tokenizer(folder).highest
    if not isinstance(rows, int) or highest >= rows:
        raise Refused(
            Refusal(
                "convert.tokenizer_rows",
                "tokenizer.json",
                highest,
                f"below vocab_size {rows}",
                "The tokenizer has ids that the embedding has no row for; it is not this model's tokenizer.",
            )
        )
