"""How long and how much memory a conversion to Q4_K_M takes: ours against llama.cpp's own tools, from one run.

Makes a 0.75 B-parameter checkpoint of Qwen3-0.6B's shape with a head of its own (bf16, the real Qwen3 tokenizer), then
runs both arms, each step in a process of its own, in alternating order, and prints every sample and the ratio of the
medians. Wall: from start to exit of the process. Memory: its largest resident set (VmHWM), which for llama-quantize
counts the mapped input too.

    python -m benchmarks.convert [--rounds 3] [--threads 2] [--keep FOLDER]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.checkpoints import config, tensor_shapes, to_bf16
from tests.support.inputs import qwen3_tokenizer
from tests.support.stock import prepare_converter, prepare_quantize

SHAPE = {
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
}
GOAL_RATIO, GOAL_MIB = 0.6, 500

NATIVE_CONVERT = """
import sys
from pathlib import Path
from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.metadata import Provenance
model, out = map(Path, sys.argv[1:])
convert_native(model, model, out, outtype="f16", provenance=Provenance(name="Benchmark-0.75B"))
"""
NATIVE_QUANTIZE = """
import sys
from pathlib import Path
from draftmill.gguf.quantize_native import quantize_native
source, out, threads = sys.argv[1:]
quantize_native(Path(source), Path(out), "Q4_K_M", threads=int(threads))
"""


@dataclass(frozen=True)
class Sample:
    """wall and cpu in seconds (cpu: user and system), peak in MiB."""

    wall: float
    cpu: float
    peak: float

    def __add__(self, other: "Sample") -> "Sample":
        return Sample(self.wall + other.wall, self.cpu + other.cpu, max(self.peak, other.peak))


def make_checkpoint(folder: Path) -> None:
    folder.mkdir(parents=True)
    cfg = config("Qwen3ForCausalLM", **SHAPE)
    (folder / "config.json").write_text(json.dumps(cfg))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(qwen3_tokenizer() / name, folder)
    head, end = {}, 0
    shapes = tensor_shapes(cfg)
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        head[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    rng = np.random.default_rng(0)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for name, shape in shapes.items():
            gain = np.float32(1 if name.endswith("norm.weight") else 0)
            left = int(np.prod(shape))
            while left:
                count = min(left, 1 << 22)
                file.write(to_bf16(gain + rng.standard_normal(count, np.float32) * np.float32(0.02)).tobytes())
                left -= count


def measure(command: list[str]) -> Sample:
    """Runs the command to its end. Its peak is read from its own /proc entry while it lives.

    Not from wait4: there a child's peak begins with what its parent held when it forked.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        wall = time.monotonic() - started
        if pid:
            break
        peak = max(peak, _high_water(process.pid))
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Sample(wall, usage.ru_utime + usage.ru_stime, peak / 1024)


def _high_water(pid: int) -> int:
    """KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def arms(model: Path, work: Path, threads: int) -> dict[str, dict[str, list[str]]]:
    converter = prepare_converter()
    stock, native = work / "stock-f16.gguf", work / "native-f16.gguf"
    return {
        "native": {
            "convert": [sys.executable, "-c", NATIVE_CONVERT, str(model), str(native)],
            "quantize": [sys.executable, "-c", NATIVE_QUANTIZE, str(native), str(work / "native.gguf"), str(threads)],
        },
        "stock": {
            "convert": [
                *(str(converter.python), str(converter.script), str(model)),
                *("--outfile", str(stock), "--outtype", "f16"),
            ],
            "quantize": [*prepare_quantize(), str(stock), str(work / "stock.gguf"), "Q4_K_M", str(threads)],
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="use this folder, and the checkpoint in it, again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = given.keep or Path(scratch)
        model = work / "checkpoint"
        if not model.exists():
            make_checkpoint(model)
        commands = arms(model, work, given.threads)
        samples: dict[str, list[dict[str, Sample]]] = {arm: [] for arm in commands}
        for number in range(given.rounds):
            order = list(commands) if number % 2 == 0 else list(reversed(commands))
            for arm in order:
                steps = {step: measure(command) for step, command in commands[arm].items()}
                steps["both"] = steps["convert"] + steps["quantize"]
                samples[arm].append(steps)
                for step, s in steps.items():
                    print(
                        f"round {number + 1}  {arm:6}  {step:8}  "
                        f"wall {s.wall:6.1f} s  cpu {s.cpu:6.1f} s  peak {s.peak:5.0f} MiB",
                        flush=True,
                    )
                for path in work.glob("*.gguf"):
                    path.unlink()
    walls = {arm: statistics.median(sample["both"].wall for sample in taken) for arm, taken in samples.items()}
    cpus = {arm: statistics.median(sample["both"].cpu for sample in taken) for arm, taken in samples.items()}
    peak = max(sample["both"].peak for sample in samples["native"])
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {given.threads} threads")
    print(f"wall, medians: native {walls['native']:.1f} s, stock {walls['stock']:.1f} s")
    print(f"ratio native / stock: wall {walls['native'] / walls['stock']:.2f} (goal: at most {GOAL_RATIO}), ", end="")
    print(f"cpu {cpus['native'] / cpus['stock']:.2f}; native peak {peak:.0f} MiB (goal: below {GOAL_MIB})")


if __name__ == "__main__":
    main()
