"""Where llama.cpp's own converter and quantizer are found, and which ones they are.

In containers they are the stock image's, and the image's ID pins them. As processes they are what the operator names
(or, for llama-quantize, has on PATH); their digest is then part of the job key and the recipe, their path is not.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from draftmill.gguf.stock_script import StockScript
from draftmill.outcome import BadConfiguration
from flows.order import Order


@dataclass(frozen=True)
class StockTools:
    order: Order

    def converter_digest(self) -> dict[str, Any]:
        return {} if self._in_image else {"converter_digest": self._converter().digest}

    def converter_paths(self) -> dict[str, Any]:
        if self._in_image:
            return {}
        script = self._converter()
        return {"stock_converter": str(script.path), "stock_python": str(script.python)}

    def quantizer_digest(self) -> dict[str, Any]:
        return {} if self._in_image else {"quantizer_digest": sha256_file(Path(self._quantizer()))}

    def quantizer_paths(self) -> dict[str, Any]:
        return {} if self._in_image else {"stock_quantizer": self._quantizer()}

    @property
    def _in_image(self) -> bool:
        return self.order.runner == "docker"

    def _converter(self) -> StockScript:
        path = self.order.stock_converter
        if path is None or not path.is_file():
            raise BadConfiguration(
                f"--converter stock needs llama.cpp's convert_hf_to_gguf.py: name it with --stock-converter (and the "
                f"interpreter that has torch and transformers with --stock-python), or use --runner docker; got {path}",
                code="convert.stock_missing",
            )
        return StockScript(path.resolve(), self.order.stock_python or Path(sys.executable))

    def _quantizer(self) -> str:
        found = shutil.which(self.order.llama_quantize or "llama-quantize")
        if found is None:
            raise BadConfiguration(
                "--quantizer stock needs llama-quantize: name it with --llama-quantize, put it on PATH, or use "
                "--runner docker",
                code="quantize.stock_missing",
            )
        return found
