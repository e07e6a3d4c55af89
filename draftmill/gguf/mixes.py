"""Which type llama-quantize gives each tensor of a dense Llama, Qwen2 or Qwen3 model (observed on b11669).

A mix has one bulk type; the head, and in the K mixes the tensors that quality depends on most, get a better one.
Where a row does not divide into a type's blocks a fallback takes its place, and that is said.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, LlamaFileType

_T = GGMLQuantizationType
FULL_TYPES = (_T.F32, _T.F16, _T.BF16)
ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Mix:
    """bulk: the type of most matrices; layered: whether attn_v and ffn_down of some layers get Q6_K."""

    name: str
    file_type: LlamaFileType
    bulk: GGMLQuantizationType
    layered: bool = False

    @property
    def quantizes(self) -> bool:
        return self.bulk not in FULL_TYPES


MIXES = {
    mix.name: mix
    for mix in (
        Mix("F16", LlamaFileType.MOSTLY_F16, _T.F16),
        Mix("BF16", LlamaFileType.MOSTLY_BF16, _T.BF16),
        Mix("Q8_0", LlamaFileType.MOSTLY_Q8_0, _T.Q8_0),
        Mix("Q4_0", LlamaFileType.MOSTLY_Q4_0, _T.Q4_0),
        Mix("Q4_K_M", LlamaFileType.MOSTLY_Q4_K_M, _T.Q4_K, layered=True),
        Mix("Q5_K_M", LlamaFileType.MOSTLY_Q5_K_M, _T.Q5_K, layered=True),
        Mix("Q6_K", LlamaFileType.MOSTLY_Q6_K, _T.Q6_K),
    )
}


@dataclass(frozen=True)
class Fallback:
    """A tensor that did not get the type that its mix means for it."""

    tensor: str
    wanted: str
    got: str
    why: str

    def as_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Choice:
    type: GGMLQuantizationType
    fallback: Fallback | None = None


@dataclass(frozen=True)
class Matrix:
    """A tensor as the rule sees it: shape with rows first."""

    shape: tuple[int, ...]
    type: GGMLQuantizationType


_FALLBACKS = {_T.Q4_K: _T.Q5_0, _T.Q5_K: _T.Q5_1, _T.Q6_K: _T.Q8_0}
_LAYER = re.compile(r"blk\.(\d+)\.")
_KNOWN = re.compile(
    r"(token_embd|output|output_norm|rope_freqs)\.weight"
    r"|blk\.\d+\.(attn_norm|attn_q|attn_k|attn_v|attn_output|attn_q_norm|attn_k_norm|ffn_norm|ffn_gate|ffn_up|ffn_down)"
    r"\.(weight|bias)"
)
_LAYERS_OF_70B = 80


def unknown_tensors(names: Iterable[str]) -> list[str]:
    """Names for which no rule is known here."""
    return [name for name in names if not _KNOWN.fullmatch(name)]


def stock_order(names: Iterable[str]) -> list[str]:
    """The order of tensors in a file of llama-quantize: tensors outside layers, then by layer; by name within."""

    def key(name: str) -> tuple[int, str]:
        layer = _LAYER.match(name)
        return (int(layer[1]) if layer else -1, name)

    return sorted(names, key=key)


def choose_types(mix: Mix, architecture: str, layers: int, tensors: Mapping[str, Matrix]) -> dict[str, Choice]:
    """The type of each tensor, in stock order. `layers` is the architecture's block_count."""
    tied = "output.weight" not in tensors
    seen = {"attn_v": 0, "ffn_down": 0}
    totals = {role: sum(name.endswith(f".{role}.weight") for name in tensors) for role in seen}
    choices = {}
    for name in stock_order(tensors):
        matrix = tensors[name]
        if not _is_converted(name, matrix.shape):
            choices[name] = Choice(matrix.type)
            continue
        if not mix.quantizes:
            choices[name] = Choice(mix.bulk)
            continue
        row, role = matrix.shape[-1], name.split(".")[-2]
        wanted = mix.bulk
        if name == "output.weight" or (tied and name == "token_embd.weight"):
            choices[name] = _choose_head(mix, name, row)
            continue
        if role in seen:
            if mix.layered and _gets_more_bits(seen[role], totals[role]):
                wanted = _T.Q6_K
            elif role == "attn_v" and wanted == _T.Q4_K and layers == _LAYERS_OF_70B and architecture != "qwen3":
                wanted = _T.Q5_K
            seen[role] += 1
        choices[name] = _fit(name, wanted, row)
    return choices


def _is_converted(name: str, shape: tuple[int, ...]) -> bool:
    """Norms, biases and everything that is one row keep the type they have."""
    rows = math.prod(shape[:-1])
    return name.endswith(".weight") and not name.endswith("_norm.weight") and rows > 1


def _gets_more_bits(index: int, total: int) -> bool:
    """The first and last eighth of the layers, and every third one between."""
    eighth = total // 8
    return index < eighth or index >= 7 * total // 8 or (index - eighth) % 3 == 2


def _choose_head(mix: Mix, name: str, row: int) -> Choice:
    if mix.bulk == _T.Q8_0:
        return _fit(name, _T.Q8_0, row)
    block = GGML_QUANT_SIZES[mix.bulk][0]
    if row % block == 0:
        return _fit(name, _T.Q6_K, row)
    got = _fit(name, _T.Q8_0, row).type
    return Choice(got, _fallback(name, _T.Q6_K, got, row))


def _fit(name: str, wanted: GGMLQuantizationType, row: int) -> Choice:
    """`wanted`, or the fallback that a row of this length allows."""
    if _divides(row, wanted):
        return Choice(wanted)
    got = _FALLBACKS.get(wanted, _T.F16)
    if not _divides(row, got):
        got = _T.F16
    return Choice(got, _fallback(name, wanted, got, row))


def _divides(row: int, kind: GGMLQuantizationType) -> bool:
    return row % GGML_QUANT_SIZES[kind][0] == 0


def _fallback(name: str, wanted: GGMLQuantizationType, got: GGMLQuantizationType, row: int) -> Fallback:
    why = f"rows of {row} do not divide into blocks of {GGML_QUANT_SIZES[wanted][0]}"
    return Fallback(name, wanted.name, got.name, why)
