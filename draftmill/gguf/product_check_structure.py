"""A product's header against config.json: tensors by name, shape and type, bytes, and hyperparameters."""

from typing import Any

import numpy as np
from gguf.constants import LlamaFileType

from draftmill.gguf.header import GGUFHeader
from draftmill.gguf.size_prediction import ExpectedTensor, Prediction, Size, gguf_architecture, rope_parameters
from draftmill.intake.findings import Findings

_AGAIN = "Make the product again from the checkpoint that this config.json belongs to."


def compare_tensors(header: GGUFHeader, prediction: Prediction) -> tuple[list[ExpectedTensor], Findings]:
    """(tensors that are there in the expected shape, findings check.tensor_missing, _unexpected, _shape, _type)."""
    findings = Findings()
    alike = []
    for name, (tensor, kind) in prediction.tensors.items():
        found = header.tensors.get(name)
        if found is None:
            findings.add(
                "check.tensor_missing", name, None, list(tensor.shape), f"The product lacks this tensor. {_AGAIN}"
            )
            continue
        if found.shape != tensor.shape:
            findings.add(
                "check.tensor_shape",
                name,
                list(found.shape),
                list(tensor.shape),
                f"The tensor has another shape than config.json asks for. {_AGAIN}",
            )
        else:
            alike.append(tensor)
        if found.type != kind:
            findings.add(
                "check.tensor_type",
                name,
                found.type.name,
                kind.name,
                "The tensor has another type than this quantization gives it; quantize again.",
            )
    for name in header.tensors.keys() - prediction.tensors.keys():
        findings.add(
            "check.tensor_unexpected",
            name,
            list(header.tensors[name].shape),
            None,
            f"config.json knows no such tensor (a head of its own beside tied embeddings is one). {_AGAIN}",
        )
    return alike, findings


def compare_size(header: GGUFHeader, prediction: Prediction) -> tuple[dict[str, Any], Findings]:
    """The file must be its header and the predicted tensors, to the byte (check.file_size)."""
    findings = Findings()
    expected = Size(header.data_offset + prediction.data_bytes)
    actual = Size(header.size)
    if actual != expected:
        findings.add(
            "check.file_size",
            "the file",
            actual.bytes,
            expected.bytes,
            f"The file has {actual}, predicted are {expected}. {_AGAIN}",
        )
    measured = {
        "file_bytes": actual.bytes,
        "predicted_bytes": expected.bytes,
        "header_bytes": header.data_offset,
        "file_size": str(actual),
        "parameters": prediction.parameters,
    }
    return measured, findings


def compare_hyperparameters(
    header: GGUFHeader, config: dict[str, Any], file_type: LlamaFileType
) -> tuple[dict[str, Any], Findings]:
    """What the engine computes with, against config.json (check.hyperparameter). Key names: gguf's constants.Keys."""
    findings = Findings()
    arch = gguf_architecture(config)
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head = config.get("head_dim") or hidden // heads
    rope = rope_parameters(config)
    expected: dict[str, Any] = {
        "general.architecture": arch,
        "general.file_type": int(file_type),
        f"{arch}.block_count": config["num_hidden_layers"],
        f"{arch}.context_length": config.get("max_position_embeddings"),
        f"{arch}.embedding_length": hidden,
        f"{arch}.feed_forward_length": config["intermediate_size"],
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": config.get("num_key_value_heads") or heads,
        f"{arch}.attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
        f"{arch}.rope.freq_base": rope["rope_theta"],
    }
    if rope["rope_type"] in ("linear", "yarn"):
        expected |= {f"{arch}.rope.scaling.type": rope["rope_type"], f"{arch}.rope.scaling.factor": rope["factor"]}
    # The engine's own default for these is hidden / heads, so only another size has to be written.
    for key in ("attention.key_length", "attention.value_length"):
        if head != hidden // heads or f"{arch}.{key}" in header.fields:
            expected[f"{arch}.{key}"] = head
    measured = {key: header.fields.get(key) for key in expected}
    for key, value in expected.items():
        if value is not None and not _same(measured[key], value):
            findings.add(
                "check.hyperparameter",
                key,
                measured[key],
                value,
                f"The product would be computed with another value than config.json has. {_AGAIN}",
            )
    return measured, findings


def _same(measured: Any, expected: Any) -> bool:
    """Equal, floats as the float32 that the file keeps."""
    if isinstance(expected, str) or isinstance(measured, str) or measured is None:
        return bool(measured == expected)
    return bool(np.float32(measured) == np.float32(expected))
