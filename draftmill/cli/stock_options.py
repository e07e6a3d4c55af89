"""The options that name llama.cpp's own converter, for the commands that can run it."""

from pathlib import Path
from typing import Annotated

import typer

from draftmill.cli.folder import file_path

StockConverter = Annotated[
    Path | None,
    typer.Option(parser=file_path, metavar="FILE", help="convert_hf_to_gguf.py of llama.cpp, for --converter stock."),
]
StockPython = Annotated[
    Path | None,
    typer.Option(parser=file_path, metavar="FILE", help="The interpreter that has torch and transformers for it."),
]
