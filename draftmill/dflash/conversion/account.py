"""What a conversion did: of every tensor from what to what, whether it is what it was, and what else it cost.

The JSON is `conversion.json` beside the output: form 1, source, out, config, tensors, totals, remarks.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import draftmill
from draftmill.dflash.config import DraftConfig
from draftmill.dflash.conversion.form import Form
from draftmill.dflash.conversion.source import PLAIN, DraftSource
from draftmill.dflash.package import File
from draftmill.digest import sha256_file

NAME = "conversion.json"
VERSION = 1
_KEEPS_CODES = {("Q4_1", "Q4_1"), ("Q4_K", "Q4_K"), ("Q8_0", "Q8_0"), ("Q4_K", "Q4_1")}


class How(StrEnum):
    """What became of a tensor."""

    KEPT = "kept"
    """Every value bit for bit, and the codes where it has any."""
    CODES_KEPT = "codes kept"
    """Every code; scales or minimums were rounded, which moved values."""
    DECODED = "decoded"
    """Every value bit for bit, in full width: the codes are given up."""
    ROUNDED = "rounded"
    """Values of full width, to a narrower one."""
    QUANTISED = "quantised"
    """Values of full width to codes, because it was asked for."""
    QUANTISED_AGAIN = "quantised again"
    """Codes to other codes, because it was asked for."""


def how(source: str, target: str, largest: float) -> How:
    """By labels (`SourceTensor.label`) and the largest difference of a value."""
    if target in PLAIN:
        if largest > 0:
            return How.ROUNDED
        return How.KEPT if source in PLAIN else How.DECODED
    if source in PLAIN:
        return How.QUANTISED
    if (source, target) not in _KEEPS_CODES:
        return How.QUANTISED_AGAIN
    return How.KEPT if largest == 0 and source == target else How.CODES_KEPT


@dataclass(frozen=True)
class TensorAccount:
    """source, target: labels. relative_rms (None of a tensor of zeros) and largest: of the difference. note: why it
    is in this form, where there is a reason to tell."""

    name: str
    shape: tuple[int, ...]
    source: str
    target: str
    how: How
    relative_rms: float | None
    largest: float
    padded_columns: int = 0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"name": self.name, "shape": list(self.shape), "from": self.source, "to": self.target}
        value |= {"how": self.how.value, "relative_rms": self.relative_rms, "largest": self.largest}
        return value | {key: said for key in ("padded_columns", "note") if (said := getattr(self, key))}


@dataclass(frozen=True)
class Row:
    """Tensors that went the same way, and the largest of their errors."""

    tensors: int
    source: str
    target: str
    how: How
    relative_rms: float
    largest: float


@dataclass(frozen=True)
class Account:
    """source, out: the files read, and those written (of which this account is none). vocabulary: whose it is and how
    that was proven, of a GGUF. left_behind: keys of the source's config that nothing here reads."""

    source_form: Form
    source: tuple[File, ...]
    form: Form
    out: tuple[File, ...]
    config: DraftConfig
    tensors: tuple[TensorAccount, ...]
    left_behind: tuple[str, ...] = ()
    vocabulary: Mapping[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def totals(self) -> dict[str, int]:
        """Tensors by what became of them, most first."""
        return dict(Counter(tensor.how.value for tensor in self.tensors).most_common())

    @property
    def worst(self) -> TensorAccount | None:
        """The tensor that is farthest from its source, None when each is what it was."""
        changed = [tensor for tensor in self.tensors if tensor.largest > 0]
        return max(changed, key=lambda tensor: tensor.relative_rms or 0.0) if changed else None

    def rows(self) -> tuple[Row, ...]:
        """The tensors by where they came from, where to, and how; most first."""
        ways = Counter((tensor.source, tensor.target, tensor.how) for tensor in self.tensors)
        rows = []
        for (source, target, how), count in ways.most_common():
            errors = [each for each in self.tensors if (each.source, each.target, each.how) == (source, target, how)]
            worst = max(each.relative_rms or 0.0 for each in errors), max(each.largest for each in errors)
            rows.append(Row(count, source, target, how, *worst))
        return tuple(rows)

    def as_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "conversion": VERSION,
            "draftmill": draftmill.__version__,
            "source": {"form": self.source_form.value, "files": [vars(file) for file in self.source]},
            "out": {"form": self.form.value, "files": [vars(file) for file in self.out]},
            "config": carried(self.config),
            "tensors": [tensor.as_json() for tensor in self.tensors],
            "totals": self.totals,
            "exact": self.worst is None,
            "left_behind": list(self.left_behind),
            "remarks": list(self.remarks),
        }
        return value | ({"vocabulary": dict(self.vocabulary)} if self.vocabulary else {})

    def as_bytes(self) -> bytes:
        return (json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n").encode()


class Complete(Protocol):
    """From what was written, and what became of every tensor, to the whole account."""

    def __call__(
        self,
        out: tuple[File, ...],
        tensors: tuple[TensorAccount, ...],
        vocabulary: Mapping[str, Any] | None = None,
        remarks: tuple[str, ...] = (),
    ) -> Account: ...


def carried(config: DraftConfig) -> dict[str, Any]:
    """What decides the drafts beside the weights. target_layer_ids: outputs of 0-based layers, whatever the form
    stores (a GGUF stores each one more)."""
    return {
        "generation": config.generation,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
        "layer_types": list(config.layer_types),
        "sliding_window": config.sliding_window,
        "causal": config.causal,
        "rope_theta": config.rope.theta,
        "rope_type": config.rope.type,
        "rope_scaling": dict(config.rope.scaling),
        "rms_norm_eps": config.rms_norm_eps,
        "input_embedding_scale": config.input_embedding_scale,
        "output_multiplier": config.output_multiplier,
        "final_logit_softcapping": config.final_logit_softcapping,
    }


def read_files(source: DraftSource) -> tuple[File, ...]:
    """The source's files with their digests; paths as seen from its folder."""
    folder = source.path if source.path.is_dir() else source.path.parent
    return tuple(
        File(path.relative_to(folder).as_posix(), path.stat().st_size, sha256_file(path)) for path in source.files
    )


def account_path(out: Path, form: Form) -> Path:
    """Where the account lies: in the folder, or beside the GGUF."""
    return out.with_name(f"{out.name.removesuffix('.gguf')}.{NAME}") if form == Form.GGUF else out / NAME
