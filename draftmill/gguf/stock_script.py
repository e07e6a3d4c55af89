"""llama.cpp's converter as files: which one it is."""

import hashlib
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration

PACKAGES = ("conversion", "gguf-py")
DEBIAN_PACKAGES = Path("/usr/share/llama.cpp/llama.cpp-tools")
"""Where Debian's copy of the script, shipped as documentation, finds its packages."""


@dataclass(frozen=True)
class StockScript:
    """path: convert_hf_to_gguf.py; python: an interpreter that can import torch and transformers."""

    path: Path
    python: Path

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the script and the packages that come with it, names and contents."""
        digest = hashlib.sha256()
        beside = self.path.parent if (self.path.parent / PACKAGES[0]).is_dir() else DEBIAN_PACKAGES
        files = [(self.path.name, self.path)]
        for package in PACKAGES:
            files += [(path.relative_to(beside).as_posix(), path) for path in sorted((beside / package).rglob("*.py"))]
        for name, path in files:
            digest.update(f"{name}\0{sha256_file(path)}\0".encode())
        return digest.hexdigest()

    @property
    def name(self) -> str:
        """How the GGUF names it: the converter states no version of its own."""
        return f"stock {self.digest[:12]}"


def stock_script(path: Path | str | None, python: Path | str | None = None) -> StockScript:
    """The converter that the caller, or else the image's environment, names.

    Raises BadConfiguration when none is named or it is not a file.
    """
    path = path or os.environ.get("DRAFTMILL_STOCK_CONVERTER")
    python = python or os.environ.get("DRAFTMILL_STOCK_PYTHON") or sys.executable
    if not path or not Path(path).is_file():
        measured = f"there is none at {path}" if path else "none is named"
        raise BadConfiguration(
            f"llama.cpp's convert_hf_to_gguf.py: {measured}. Name it with --stock-converter or "
            "DRAFTMILL_STOCK_CONVERTER (and an interpreter that has torch and transformers with --stock-python or "
            "DRAFTMILL_STOCK_PYTHON), use the stock image (--runner docker), or --converter native.",
            code="convert.stock_missing",
            where=str(path),
        )
    # It runs in a folder of its own, and its packages lie beside the file itself. A bare name of an interpreter is
    # looked for on PATH; a link in an environment has to stay one.
    found = Path(python)
    return StockScript(Path(path).resolve(), found.absolute() if len(found.parts) > 1 else found)
