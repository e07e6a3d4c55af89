"""Where llama.cpp's own converter and quantizer are found, and which ones they are.

In containers they are the stock image's, and the image's ID pins them. As processes they are what the operator names
(or the environment does, or, for llama-quantize, what is on PATH); their digest is then part of the job key and the
recipe, their path is not.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from draftmill.gguf.stock_script import StockScript, stock_script
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
        return stock_script(self.order.stock_converter, self.order.stock_python)

    def _quantizer(self) -> str:
        found = shutil.which(self.order.llama_quantize or "llama-quantize")
        if found is None:
            raise BadConfiguration(
                "--quantizer stock needs llama-quantize: name it with --llama-quantize, put it on PATH, or use "
                "--runner docker",
                code="quantize.stock_missing",
            )
        return found
