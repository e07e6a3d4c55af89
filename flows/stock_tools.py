"""Where llama.cpp's own converter and quantizer are found, and which ones they are.

In containers they are the stock image's, and the image's ID pins them. As processes they are what the operator names
(or, for llama-quantize, has on PATH); their digest is then part of the job key and the recipe, their path is not.
"""

import hashlib
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration
from flows.order import Order


def _tree_digest(script: Path) -> str:
    """The converter is its script and the packages beside it."""
    digest = hashlib.sha256()
    parts = [
        script,
        *sorted((script.parent / "conversion").rglob("*.py")),
        *sorted((script.parent / "gguf-py").rglob("*.py")),
    ]
    for path in parts:
        digest.update(f"{path.relative_to(script.parent)}\0{sha256_file(path)}\0".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class StockTools:
    order: Order

    def converter_digest(self) -> dict[str, Any]:
        return {} if self._in_image else {"converter_digest": _tree_digest(self._converter())}

    def converter_paths(self) -> dict[str, Any]:
        if self._in_image:
            return {}
        return {
            "stock_converter": str(self._converter()),
            "stock_python": str(self.order.stock_python or sys.executable),
        }

    def quantizer_digest(self) -> dict[str, Any]:
        return {} if self._in_image else {"quantizer_digest": sha256_file(Path(self._quantizer()))}

    def quantizer_paths(self) -> dict[str, Any]:
        return {} if self._in_image else {"stock_quantizer": self._quantizer()}

    @property
    def _in_image(self) -> bool:
        return self.order.runner == "docker"

    def _converter(self) -> Path:
        path = self.order.stock_converter
        if path is None or not path.is_file():
            raise BadConfiguration(
                f"--converter stock needs llama.cpp's convert_hf_to_gguf.py: name it with --stock-converter (and the "
                f"interpreter that has torch and transformers with --stock-python), or use --runner docker; got {path}",
                code="convert.stock_missing",
            )
        return path.resolve()

    def _quantizer(self) -> str:
        found = shutil.which(self.order.llama_quantize or "llama-quantize")
        if found is None:
            raise BadConfiguration(
                "--quantizer stock needs llama-quantize: name it with --llama-quantize, put it on PATH, or use "
                "--runner docker",
                code="quantize.stock_missing",
            )
        return found
