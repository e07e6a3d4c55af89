"""The GGUF pair that an engine runs: as given, or made here of the folders that the own loop runs."""

from collections import Counter
from pathlib import Path

import numpy as np

from draftmill.dflash.conversion.account import carried
from draftmill.dflash.forward import Draft
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.dflash.package import Package
from draftmill.digest import sha256_json
from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.convert_stock import convert_stock
from draftmill.gguf.header import read_header
from draftmill.gguf.metadata import Provenance
from draftmill.gguf.stock_script import stock_script
from draftmill.measurement.cross_record import Gguf
from draftmill.measurement.subject import describe, describe_folder
from draftmill.outcome import BadConfiguration, Refusal, Refused
from draftmill.progress import Progress, silent
from draftmill.tokenizers.ggml import read_gguf

LARGEST = 8 << 30
"""Bytes of weights of a target that is converted without being asked: more takes its time and its place."""
OUTTYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def target_gguf(folder: Path, place: Path, dtype: str, progress: Progress = silent) -> tuple[Path, str]:
    """The target of a Hugging Face folder as one GGUF below `place`, made where it is not there; and its converter.

    The mill's own converter where it knows the architecture, else llama.cpp's where one is named.
    Raises Refused (cross.target_large, what the converters raise), MillError.
    """
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if weights > LARGEST:
        raise Refused(
            Refusal(
                "cross.target_large", str(folder), weights, LARGEST,
                "The target is not converted without being asked; convert it and give it by --target-gguf.",
            )
        )  # fmt: skip
    out = place / f"{stem(folder)}-{OUTTYPES[dtype]}.gguf"
    if not out.is_file():
        place.mkdir(parents=True, exist_ok=True)
        _convert(folder, out, OUTTYPES[dtype], progress)
    return out, str(read_header(out).fields.get("draftmill.converter"))


def _convert(folder: Path, out: Path, outtype: str, progress: Progress) -> None:
    provenance = Provenance(name=folder.resolve().name)
    try:
        convert_native(folder, folder, out, outtype=outtype, provenance=provenance, progress=progress)
    except Refused as refused:
        if refused.code != "convert.architecture":
            raise
        try:
            script = stock_script(None)
        except BadConfiguration:
            raise refused from None
        convert_stock(folder, folder, out, outtype=outtype, provenance=provenance, script=script, progress=progress)


def described(path: Path, made: str | None) -> Gguf:
    """Raises Refused where the file is no whole GGUF, OSError."""
    types = Counter(tensor.type.name for tensor in read_header(path).tensors.values())
    return Gguf(
        file=describe(path),
        made=made,
        types=dict(sorted(types.items())),
        rounded=tuple(sorted(kind for kind in types if kind != "F32")),
    )


def check_same_draft(drafter: Path, gguf: Path, causal: bool | None) -> None:
    """causal: as told, for configs that do not state it. Reals are held as float32, as a GGUF has them; weights are
    not compared.

    Raises Refused with every key that decides the drafts and differs (cross.other_draft), what `Draft.open` raises.
    """
    with Draft.open(drafter, causal=causal) as one, Draft.open(gguf, causal=causal) as other:
        expected, measured = carried(one.config), carried(other.config)
    refusals = [
        Refusal(
            "cross.other_draft",
            f"{gguf.name}:{key}",
            measured[key],
            value,
            f"{gguf.name} is another draft than {drafter}, so that their rounds say nothing of each other: give "
            "the GGUF of this drafter, or leave --drafter-gguf away and it is made.",
        )
        for key, value in expected.items()
        if _stored(measured[key]) != _stored(value)
    ]
    if refusals:
        raise Refused(*refusals)


def _stored(value: object) -> object:
    if isinstance(value, dict):
        return {key: _stored(inner) for key, inner in value.items()}
    return np.float32(value) if isinstance(value, float) else value


def stem(folder: Path) -> str:
    """A name that another content never gets."""
    return f"{folder.resolve().name}-{describe_folder(folder, None).sha256[:12]}"


def draft_gguf(
    drafter: Path, target: Path, place: Path, outtype: str, causal: bool | None, progress: Progress = silent
) -> tuple[Path, str]:
    """The draft of a package's or checkpoint's folder as a GGUF below `place`, as `target_gguf`.

    target: the GGUF that it will run with, whose vocabulary it gets. outtype: f32 keeps every weight and lets an engine
    multiply without rounding; stored keeps what is stored.
    Raises Refused (opening the draft, `write_gguf`), MillError.
    """
    with Draft.open(drafter, causal=causal) as draft:
        source = draft.weights.source
        of = sha256_json(read_gguf(target).digests)[:12]
        kind = outtype if outtype == "f32" else ("codes" if isinstance(source, Package) else "auto")
        out = place / f"{stem(drafter)}-{'' if causal is None else f'causal-{causal}-'}{kind}-of-{of}.gguf"
        if not out.is_file():
            place.mkdir(parents=True, exist_ok=True)
            write_gguf(source, target, out, outtype=kind, progress=progress)  # type: ignore[arg-type]
    return out, str(read_header(out).fields.get("draftmill.converter"))
