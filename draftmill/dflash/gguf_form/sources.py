"""What is written of a draft in each form: an upstream checkpoint's tensors as llama.cpp's converter stores them."""

from gguf.constants import GGMLQuantizationType

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.gguf_form.plan import Planned, plain_tensor
from draftmill.dflash.inventory import Role, expected_tensors

_F32 = GGMLQuantizationType.F32
SMALL = (Role.NORM, Role.CONV_KERNEL)
"""What llama.cpp has as F32 only: what has one extent, and what its name does not call a weight."""


def plan_checkpoint(source: Checkpoint, outtype: str) -> list[Planned]:
    """In the order of the checkpoint's files, as llama.cpp's converter has it. outtype: auto, f32, f16 or bf16."""
    kind = _first_kind(source) if outtype == "auto" else GGMLQuantizationType[outtype.upper()]
    expected = {each.name: each for each in expected_tensors(source.config, scalars=False)}
    why = "as the checkpoint's first matrix" if outtype == "auto" else f"asked for as {outtype}"
    return [
        plain_tensor(
            expected[name],
            rows,
            rows.kind,
            _F32 if expected[name].role in SMALL else kind,
            "llama.cpp has it as F32" if expected[name].role in SMALL else why,
        )
        for name, rows in source.tensors.items()
    ]


def _first_kind(source: Checkpoint) -> GGMLQuantizationType:
    """The converter's own guess: the type of the first tensor with two extents that has one of two bytes, else F16."""
    kinds = [rows.kind for rows in source.tensors.values() if len(rows.shape) > 1]
    return GGMLQuantizationType[next((kind for kind in kinds if kind in ("BF16", "F16")), "F16")]
