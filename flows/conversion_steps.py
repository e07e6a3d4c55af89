"""The jobs of one conversion as steps: which inputs, parameters and limits each gets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.hub.ref import Ref, parse_ref
from draftmill.hub.source import choose_source
from flows.chain import Done, Input, Step
from flows.order import Order
from flows.runners.runner import GIB, Limits
from flows.stock_tools import StockTools

Listing = dict[str, Any]
NETWORK = Limits(network=True, memory_bytes=1 * GIB)
SMALL = Limits(memory_bytes=2 * GIB, timeout_s=1800)
NATIVE = Limits(memory_bytes=2 * GIB)
STOCK = Limits(memory_bytes=16 * GIB)


def _output(done: Done) -> Input:
    return Input.of(done.finished)


@dataclass(frozen=True)
class Steps:
    """Builds the steps of `order`. `secrets`: name -> file, given to the jobs with network only."""

    order: Order
    secrets: dict[str, Path]
    stock: StockTools

    def resolve(self, text: str, files: str) -> Step:
        ref = parse_ref(text)
        inputs, locators = self._source(ref)
        parameters: dict[str, Any] = {"files": files}
        if ref.folder is None:
            parameters["ref"] = text
        return Step(
            "resolve",
            f"resolve {text}",
            text,
            parameters,
            inputs,
            locators,
            NETWORK,
            self._hub_secrets(inputs),
            cached=False,
        )

    def download(self, text: str, listing: Listing) -> Step:
        ref = parse_ref(text)
        inputs, locators = self._source(ref)
        secrets = self._hub_secrets(inputs)
        return Step("download", f"download {text}", text, {"listing": listing}, inputs, locators, NETWORK, secrets)

    def intake(self, text: str, downloaded: Done, role: str) -> Step:
        return Step("intake", f"intake {text}", text, {"role": role}, {"model": _output(downloaded)}, limits=SMALL)

    def tokenizer(self, model: Done, donor: Done | None, listing: Listing, donor_listing: Listing | None) -> Step:
        parameters: dict[str, Any] = {"base_models": listing["base_models"]}
        inputs = {"model": _output(model)}
        if donor and donor_listing:
            parameters["donor_source"] = f"{donor_listing['repo']}@{donor_listing['commit']}"
            inputs["donor"] = _output(donor)
        title = "borrow tokenizer" if donor else "check tokenizer"
        return Step("tokenizer", title, self.order.ref, parameters, inputs, limits=SMALL)

    def convert(self, model: Done, tokenizer: Done, provenance: dict[str, Any], file_name: str) -> Step:
        order = self.order
        parameters, locators, limits = self._converter(
            {"outtype": order.base.lower(), "provenance": provenance, "file_name": file_name}
        )
        inputs = {"model": _output(model), "tokenizer": _output(tokenizer)}
        return Step("convert", f"convert to {order.base}", order.ref, parameters, inputs, locators, limits)

    def quantize(self, base: Done, quant: str, file_name: str) -> Step:
        order = self.order
        parameters = {"type": quant, "quantizer": order.quantizer, "name": file_name.removesuffix(".gguf")}
        limits, locators = NATIVE, {}
        if order.quantizer == "stock":
            limits = STOCK
            parameters |= self.stock.quantizer_digest()
            locators = self.stock.quantizer_paths()
        inputs = {"gguf": _output(base)}
        return Step("quantize", f"quantize to {quant}", f"{order.ref} {quant}", parameters, inputs, locators, limits)

    def check(self, quant: str, model: Done, tokenizer: Done, base: Done, product: Done) -> Step:
        inputs = {
            "model": _output(model),
            "tokenizer": _output(tokenizer),
            "source": _output(base),
            "product": _output(product),
        }
        limits = Limits(memory_bytes=8 * GIB)
        return Step("check", f"check {quant}", f"{self.order.ref} {quant}", {"type": quant}, inputs, limits=limits)

    def dflash_convert(self, package: Done, target: Done, provenance: dict[str, Any], entry: str) -> Step:
        parameters, locators, limits = self._converter({"to": "gguf", "entry": entry, "provenance": provenance})
        inputs = {"draft": _output(package), "target": _output(target)}
        return Step("dflash_convert", "convert to GGUF", self.order.ref, parameters, inputs, locators, limits)

    def _converter(self, parameters: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Limits]:
        """`parameters` with the order's converter, the locators of it, and the limits of a job that runs it."""
        parameters = {"converter": self.order.converter, **parameters}
        if self.order.converter != "stock":
            return parameters, {}, NATIVE
        return parameters | self.stock.converter_digest(), self.stock.converter_paths(), STOCK

    def _source(self, ref: Ref) -> tuple[dict[str, Input], dict[str, Any]]:
        """Input slots and locators that say where a reference's files come from. None of it is in the job key."""
        if ref.folder:
            return {"folder": Input(ref.folder, None)}, {}
        if self.order.hub.startswith("file://"):
            mirror = choose_source(mirror=self.order.hub)
            return {"mirror": Input(mirror.root, None)}, {}  # type: ignore[union-attr]
        return {}, {"endpoint": self.order.hub}

    def _hub_secrets(self, inputs: dict[str, Input]) -> dict[str, Path]:
        return {} if inputs else self.secrets
