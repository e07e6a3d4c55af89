"""Which safetensors files make up a model, and whether files, shard numbers and index agree tensor by tensor."""

import re
from pathlib import Path
from typing import Any

from draftmill.intake.bounded_json import read_object
from draftmill.intake.findings import Findings
from draftmill.intake.folder import Contents, is_plain
from draftmill.intake.safetensors_header import TensorEntry, read_header
from draftmill.outcome import Refused

INDEX = "model.safetensors.index.json"
INDEX_LIMIT = 64 << 20
DTYPES = ("BF16", "F16", "F32")
_SHARD = re.compile(r"model-(\d{5})-of-(\d{5})\.safetensors")


def check_weights(folder: Path, contents: Contents, findings: Findings) -> dict[str, TensorEntry]:
    """Tensor name -> entry, over all files of the model.

    Codes: those of `read_header`, and intake.index_malformed, index_path, shard_missing, shard_numbers,
    weights_missing, pickled_weights_only, weights_unlisted, tensor_twice, tensor_dtype, index_tensor_missing,
    index_wrong_file, index_tensor_unlisted, index_total_size.
    """
    weight_map, total_size = _read_index(folder, contents, findings)
    present = {path for path in contents.present if path.endswith(".safetensors")}
    files = _expected_files(present, weight_map, findings)
    # An index that cannot be used says nothing of which files belong to the model.
    indexed = weight_map is not None or INDEX not in contents.present
    if not files and indexed:
        _report_no_weights(contents, findings)
    for path in sorted(files - present):
        findings.add(
            "intake.shard_missing",
            path,
            "absent",
            "present",
            "A part of the model is missing; download it again in full.",
        )
    for path in sorted(present - files if indexed else ()):
        findings.add(
            "intake.weights_unlisted",
            path,
            "present",
            f"model.safetensors, model-0000k-of-0000N.safetensors or a file that {INDEX} names",
            "The file is not part of the model that index and names describe; remove it, or mend the index.",
        )
    tensors: dict[str, TensorEntry] = {}
    holder: dict[str, str] = {}
    readable = 0
    for path in sorted(files & contents.kinds.keys()):
        try:
            header = read_header(folder / path)
        except Refused as refused:
            findings.extend(refused.refusals)
            continue
        readable += 1
        for name, entry in header.tensors.items():
            if name in holder:
                findings.add(
                    "intake.tensor_twice",
                    f"{path}:{name}",
                    holder[name],
                    "one file",
                    "The tensor stands in two files, and readers disagree which one counts; publish it once.",
                )
            if entry.dtype not in DTYPES:
                findings.add(
                    "intake.tensor_dtype",
                    f"{path}:{name}",
                    entry.dtype,
                    list(DTYPES),
                    "The tensor is not plain floating point; give the repository with the unquantized weights.",
                )
            holder[name], tensors[name] = path, entry
    # With a file unread, what the index says of it cannot be judged; that file's own finding is enough.
    if weight_map is not None and readable == len(files):
        _compare(weight_map, total_size, tensors, holder, findings)
    return tensors


def _read_index(folder: Path, contents: Contents, findings: Findings) -> tuple[dict[str, str] | None, Any]:
    """(weight_map with plain names only, metadata.total_size); weight_map is None without a usable index."""
    if INDEX not in contents.kinds:
        return None, None
    try:
        index = read_object(folder / INDEX, INDEX, INDEX_LIMIT)
    except Refused as refused:
        findings.extend(refused.refusals)
        return None, None
    weight_map, metadata = index.get("weight_map"), index.get("metadata", {})
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
        or not isinstance(metadata, dict)
    ):
        findings.add(
            "intake.index_malformed",
            f"{INDEX}:weight_map",
            type(weight_map).__name__,
            "an object of tensor name -> file name",
            "The index does not map tensors to files; fetch it again, or mend it at its source.",
        )
        return None, None
    unsafe = {file for file in weight_map.values() if not is_plain(file) or not file.endswith(".safetensors")}
    for file in sorted(unsafe):
        findings.add(
            "intake.index_path",
            f"{INDEX}:weight_map",
            file[:200],
            "the plain name of a .safetensors file in the same folder",
            "The index leads out of the folder, or to another kind of file; do not trust this repository.",
        )
    return (None if unsafe else weight_map), metadata.get("total_size")


def _expected_files(present: set[str], weight_map: dict[str, str] | None, findings: Findings) -> set[str]:
    numbered = {path: match for path in present if (match := _SHARD.fullmatch(path))}
    totals = {int(match[2]) for match in numbered.values()}
    expected = set(weight_map.values()) if weight_map is not None else set(numbered)
    if weight_map is None and "model.safetensors" in present:
        expected.add("model.safetensors")
    wrong = [path for path, match in numbered.items() if not 0 < int(match[1]) <= int(match[2])]
    if len(totals) > 1 or wrong:
        findings.add(
            "intake.shard_numbers",
            ", ".join(wrong) or "model-*-of-*.safetensors",
            sorted(totals),
            "parts 1..N of one N",
            "The parts' numbers do not belong to one model; download it again into an empty folder.",
        )
    elif totals:
        total = totals.pop()
        expected |= {f"model-{number:05d}-of-{total:05d}.safetensors" for number in range(1, total + 1)}
    return expected


def _report_no_weights(contents: Contents, findings: Findings) -> None:
    pickled = [path for path in sorted(contents.present) if path.startswith("pytorch_model") and path.endswith(".bin")]
    if pickled:
        findings.add(
            "intake.pickled_weights_only",
            pickled[0],
            pickled,
            "model.safetensors",
            "The weights come only as pickles, which run code when loaded; ask the publisher for safetensors.",
        )
    elif not any(path.endswith(".safetensors") for path in contents.present):
        findings.add(
            "intake.weights_missing",
            "model.safetensors",
            "absent",
            "model.safetensors or numbered parts",
            "The folder holds no weights; download the whole repository, or give it as a donor of its tokenizer.",
        )


def _compare(
    weight_map: dict[str, str],
    total_size: Any,
    tensors: dict[str, TensorEntry],
    holder: dict[str, str],
    findings: Findings,
) -> None:
    for name in sorted(weight_map.keys() | holder.keys()):
        listed, held = weight_map.get(name), holder.get(name)
        if listed == held:
            continue
        code, sentence = (
            ("index_tensor_missing", "The index lists a tensor that no file holds; download the model again in full.")
            if held is None
            else ("index_tensor_unlisted", "A file holds a tensor that the index does not list; mend the index.")
            if listed is None
            else ("index_wrong_file", "The tensor lies in another file than the index says; mend the index.")
        )
        findings.add(f"intake.{code}", f"{INDEX}:{name}", held, listed, sentence)
    size = sum(entry.nbytes for entry in tensors.values())
    if total_size is not None and total_size != size and tensors.keys() == weight_map.keys():
        findings.add(
            "intake.index_total_size",
            f"{INDEX}:metadata.total_size",
            total_size if isinstance(total_size, int | float) else str(total_size)[:80],
            size,
            "Index and files are of different versions, since their sizes differ; download both again.",
        )
