"""Secrets of a run: written to files only the owner reads, handed to jobs by path, gone with the run.

Never parameters, labels, environment of a job, or log lines.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = {"hf_token": ("HF_TOKEN_FILE", "HF_TOKEN")}
"""Secret -> (variable that names a file, variable that holds the value)."""


@contextmanager
def secret_files() -> Iterator[dict[str, Path]]:
    """Name -> file, for each secret that the environment gives."""
    with tempfile.TemporaryDirectory(prefix="draftmill-secrets-") as name:
        folder = Path(name)
        found = {}
        for secret, (file_variable, variable) in SOURCES.items():
            given = os.environ.get(file_variable)
            value = Path(given).read_text().strip() if given else os.environ.get(variable, "").strip()
            if value:
                path = folder / secret
                path.touch(mode=0o600)
                path.write_text(value)
                found[secret] = path
        yield found
