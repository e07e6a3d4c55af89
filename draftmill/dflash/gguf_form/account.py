"""What became of each tensor on its way into a GGUF file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from draftmill.dflash.remark import Remark


@dataclass(frozen=True)
class StoredTensor:
    """name: the mill's; stored: the GGUF's. source, target: how it was and is stored.

    codes_kept: whether the codes of a packed tensor are the same bit for bit; None for one that had none. units: its
    groups of 32 where codes are kept, else its values; inexact: those that moved. largest: no weight moved by
    more, which is the most that one did where no codes are kept. reason: why it is stored so.
    """

    name: str
    stored: str
    source: str
    target: str
    codes_kept: bool | None
    units: int
    inexact: int
    largest: float
    reason: str

    @property
    def exact(self) -> bool:
        """Whether every weight is the same."""
        return self.inexact == 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"exact": self.exact}


@dataclass(frozen=True)
class WrittenGguf:
    """size: of the file, in bytes. file_type: llama.cpp's name of what most weights are stored as.

    rounded: key -> the config's value where no float32 of the file gives it again.
    """

    path: Path
    size: int
    file_type: str
    tensors: tuple[StoredTensor, ...]
    remarks: tuple[Remark, ...]
    rounded: dict[str, float]
