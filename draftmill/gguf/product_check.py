"""What is true of a finished GGUF: every check, its measured values, and all that speaks against the product.

The checks do not ask the converter or the quantizer: tensors are predicted from config.json, weights dequantized by the
`gguf` package and held against the published checkpoint, the tokenizer run by llama.cpp and by `tokenizers`, and the
engine generates from the file. The one thing shared is `mixes`, the rule which type a tensor gets.
"""

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGMLQuantizationType, LlamaFileType

from draftmill.engine.process import EngineError
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.gguf.mixes import MIXES, Matrix, choose_types
from draftmill.gguf.product_check_floors import BLOCK_LIMIT, TENSOR_LIMIT
from draftmill.gguf.product_check_generation import generate_twice
from draftmill.gguf.product_check_reference import Checkpoint, GGUFRows, Reference
from draftmill.gguf.product_check_structure import compare_hyperparameters, compare_size, compare_tensors
from draftmill.gguf.product_check_tokenizer import compare_tokenizing, compare_vocabulary
from draftmill.gguf.product_check_weights import compare_weights
from draftmill.gguf.size_prediction import ExpectedTensor, Head, expected_tensors, gguf_architecture, predict
from draftmill.intake.bounded_json import read_object
from draftmill.intake.findings import Findings
from draftmill.outcome import BadConfiguration, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.tokenizers.huggingface import read_tokenizer

Measured = tuple[dict[str, Any], Findings]

CONFIG_LIMIT = 16 << 20
WEIGHT_LIMITS = {"tensor_ratio": TENSOR_LIMIT, "block_ratio": BLOCK_LIMIT}

F16, F32 = GGMLQuantizationType.F16, GGMLQuantizationType.F32


@dataclass(frozen=True)
class CheckResult:
    """One check: what it measured, the limits it held that against, and what it found wrong."""

    name: str
    measured: dict[str, Any]
    limits: dict[str, Any]
    refusals: tuple[Refusal, ...]

    @property
    def verdict(self) -> str:
        return "refused" if self.refusals else "pass"

    def as_json(self) -> dict[str, Any]:
        return {
            "check": self.name,
            "verdict": self.verdict,
            "measured": self.measured,
            "limits": self.limits,
            "refusals": [refusal.as_json() for refusal in self.refusals],
        }


@dataclass(frozen=True)
class ProductCheck:
    """All checks of a product, in the order they ran."""

    product: str
    results: tuple[CheckResult, ...]

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        return tuple(refusal for result in self.results for refusal in result.refusals)

    def as_json(self) -> dict[str, Any]:
        verdict = "refused" if self.refusals else "pass"
        return {"product": self.product, "verdict": verdict, "checks": [result.as_json() for result in self.results]}


@dataclass(frozen=True)
class Inputs:
    """product and source: GGUF files, source the unquantized one; model: folder with config.json and the weights;
    tokenizer: folder with the tokenizer.json the product should have; type: the name of the file's mix ("Q4_K_M")."""

    product: Path
    source: Path
    model: Path
    tokenizer: Path
    type: str


def check_product(inputs: Inputs, progress: Progress = silent) -> ProductCheck:
    """Runs every check; one that fails does not stop the others.

    Raises Refused when there is nothing to check: no readable header (gguf.*), configuration or tokenizer.
    Engine failures are findings (check.engine.*); BadConfiguration when the engine is not installed.
    """
    header = read_header(inputs.product)
    config = read_object(inputs.model / "config.json", "config.json", CONFIG_LIMIT)
    vocabulary = read_tokenizer(inputs.tokenizer)
    with ExitStack() as files:
        reference, has_head = _reference(inputs, config, files)
        head = output_head(config, has_head)
        tensors = expected_tensors(config, head)
        types = tensor_types(inputs.type, config, tensors, header)
        prediction = predict(tensors, types, alignment=header.alignment)
        alike, tensor_findings = compare_tensors(header, prediction)
        facts = {"tensors": len(header.tensors), "head": head, "types_by_rule": inputs.type in (F32.name, *MIXES)}
        product = files.enter_context(closing(GGUFRows(inputs.product, header)))
        results = [
            _result("tensors", (facts, tensor_findings)),
            _result("size", compare_size(header, prediction)),
            _result("hyperparameters", compare_hyperparameters(header, config, file_type(inputs.type))),
            _result("weights", _weights(alike, product, reference, progress), WEIGHT_LIMITS),
        ]
    rows = config["vocab_size"]
    steps: list[tuple[str, Callable[[], Measured]]] = [
        ("vocabulary", lambda: compare_vocabulary(inputs.product, header, vocabulary, rows)),
        ("tokenizing", lambda: compare_tokenizing(inputs.product, inputs.tokenizer, vocabulary)),
        ("generation", lambda: generate_twice(inputs.product)),
    ]
    for number, (name, step) in enumerate(steps):
        progress(name, number, len(steps))
        results.append(_result(name, _with_engine(step)))
    progress("checks", len(steps), len(steps))
    return ProductCheck(inputs.product.name, tuple(results))


def output_head(config: dict[str, Any], has_head: bool) -> Head:
    """Which head the GGUF must have; `has_head`: the checkpoint holds one. A silent configuration leaves it to that."""
    if config.get("tie_word_embeddings", not has_head):
        return "copy" if has_head else "shared"
    return "own"


def file_type(product_type: str) -> LlamaFileType:
    """The value of general.file_type for a product type ("Q4_K_M"). Raises BadConfiguration when there is no such."""
    for name in (f"MOSTLY_{product_type}", f"ALL_{product_type}"):
        if name in LlamaFileType.__members__:
            return LlamaFileType[name]
    raise BadConfiguration(f"{product_type!r} is no type of GGUF file, as {sorted(MIXES)} are", code="check.type")


def tensor_types(
    product_type: str, config: dict[str, Any], tensors: list[ExpectedTensor], header: GGUFHeader
) -> dict[str, GGMLQuantizationType]:
    """Tensor name -> its type in a product of `product_type`: by `mixes`, or as it was found where no mix is known."""
    full = {tensor.name: F32 if len(tensor.shape) == 1 else F16 for tensor in tensors}
    if product_type == F32.name:
        return dict.fromkeys(full, F32)
    if product_type not in MIXES:
        return full | {t.name: header.tensors[t.name].type for t in tensors if _is_alike(t, header)}
    matrices = {tensor.name: Matrix(tensor.shape, full[tensor.name]) for tensor in tensors}
    choices = choose_types(MIXES[product_type], gguf_architecture(config), config["num_hidden_layers"], matrices)
    return {name: choice.type for name, choice in choices.items()}


def _is_alike(tensor: ExpectedTensor, header: GGUFHeader) -> bool:
    found = header.tensors.get(tensor.name)
    return found is not None and found.shape == tensor.shape


def _reference(inputs: Inputs, config: dict[str, Any], files: ExitStack) -> tuple[Reference, bool]:
    """(what the weights are held against, whether it holds an output head): the checkpoint, if its weights can be read.

    Pickled weights cannot, so a product of them is held against the unquantized GGUF.
    """
    checkpoint = files.enter_context(closing(Checkpoint(inputs.model, config)))
    if "model.embed_tokens.weight" in checkpoint:
        return checkpoint, "lm_head.weight" in checkpoint
    source = files.enter_context(closing(GGUFRows(inputs.source, read_header(inputs.source))))
    return source, "output.weight" in source.header.tensors


def _weights(tensors: list[ExpectedTensor], product: GGUFRows, reference: Reference, progress: Progress) -> Measured:
    fidelities, findings = compare_weights(tensors, product, reference, progress)
    measured = {
        "against": reference.name,
        "lowest_cosine": min((f.cosine for f in fidelities if f.cosine is not None), default=None),
        "tensors": [fidelity.as_json() for fidelity in fidelities],
    }
    return measured, findings


def _with_engine(step: Callable[[], Measured]) -> Measured:
    """Runs a step; what the engine or a reader refuses about the product becomes findings of its own."""
    findings = Findings()
    try:
        return step()
    except EngineError as error:
        findings.add(
            f"check.{error.code}",
            "the engine",
            error.log,
            "no failure",
            f"{error}. A product that llama.cpp does not run is of no use; make it again.",
        )
    except Refused as refused:
        findings.extend(refused.refusals)
    return {}, findings


def _result(name: str, measured: Measured, limits: dict[str, Any] | None = None) -> CheckResult:
    return CheckResult(name, measured[0], limits or {}, measured[1].refusals)
