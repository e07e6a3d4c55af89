"""The gate beside SHA-256 alone on packages of the published geometries: time, bytes read, peak memory, ratio.

Makes a package with the geometry of the Bolt draft (0.27 GB) and one with that of the 27B DFlash 2 draft (1.2 GB) in a
temporary folder, and gates each in a process of its own, which takes turns with plain hashing of the container. Both
are wall times of the best of several turns, with the file in the page cache.

    python -m benchmarks.gate [bolt] [27b]
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.published_geometries import CONFIGS, make
from draftmill.dflash.gate import gate
from draftmill.digest import sha256_file

TURNS = 5


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(folder: Path) -> None:
    """Prints the figures of one package as JSON: the peak is taken before anything else than the gate has run."""
    result = gate(folder)
    # Not getrusage, whose peak is that of the process that started this one where that was larger.
    status = Path("/proc/self/status").read_text()
    peak = 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    hashing, gating = [], []
    for _ in range(TURNS):
        hashing.append(seconds(lambda: sha256_file(folder / "model.q4nx")))
        gating.append(seconds(lambda: gate(folder)))
    figures = {"verdict": result.sentence, "read": result.bytes_read, "peak": peak}
    print(json.dumps(figures | {"hashing": hashing, "gating": gating}))


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="draftmill-gate-") as place:
        for name in names or list(CONFIGS):
            folder = Path(place) / name
            make(folder, CONFIGS[name])
            command = [sys.executable, "-m", "benchmarks.gate", "--measure", str(folder)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            size = (folder / "model.q4nx").stat().st_size
            hashing, gating = min(found["hashing"]), min(found["gating"])
            print(f"{name}: {size / 1e9:.3f} GB, {found['verdict']}")
            print(f"  gate    {gating:7.3f} s   all turns {[round(each, 3) for each in found['gating']]}")
            print(f"  sha256  {hashing:7.3f} s   all turns {[round(each, 3) for each in found['hashing']]}")
            print(f"  ratio   {gating / hashing:7.2f}     goal at most 1.5")
            print(f"  read    {found['read'] / 1e9:7.3f} GB, {found['read'] / size:.4f} x the container")
            print(f"  peak    {found['peak'] / 1e6:7.0f} MB    goal below 300")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]))
    else:
        main(sys.argv[1:])
