"""A scratch folder that looks like a whole repository: a model's files and the tokenizer to use, linked side by side.

Input folders are read-only and a borrowed tokenizer lies in another one, while readers of tokenizers and llama.cpp's
converter want one folder. The converter also reads the folder's name, so it carries the repository's.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from draftmill.intake.weights import INDEX

MODEL_FILES = ("config.json", "generation_config.json", INDEX)
WEIGHTS = "*.safetensors"
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "additional_chat_templates",
)


@contextmanager
def merged_folder(model: Path, tokenizer: Path, name: str = "model") -> Iterator[Path]:
    """Yields the folder, called `name`, below the temporary directory; it is gone afterwards."""
    files = [model / file for file in MODEL_FILES] + sorted(model.glob(WEIGHTS))
    with _linked([*files, *(tokenizer / file for file in TOKENIZER_FILES)], name) as folder:
        yield folder


@contextmanager
def vocabulary_folder(model: Path) -> Iterator[Path]:
    """As `merged_folder`, of one folder and without its weights, whose index would ask for them."""
    files = [file for file in (*MODEL_FILES, *TOKENIZER_FILES) if file != INDEX]
    with _linked([model / file for file in files], "model") as folder:
        yield folder


@contextmanager
def _linked(files: Iterable[Path], name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="draftmill-") as scratch:
        folder = Path(scratch) / name.replace("/", "-").lstrip(".")
        folder.mkdir()
        for file in files:
            if file.exists():
                (folder / file.name).symlink_to(file.resolve())
        yield folder
