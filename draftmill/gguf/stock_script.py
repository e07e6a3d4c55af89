"""llama.cpp's converter as files: which one it is."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from draftmill.digest import sha256_file

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
