"""Where a llama-server comes from, and what one that runs really is, read from its process."""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from draftmill.measurement.servers.live_process import (
    Mapped,
    arguments,
    environment,
    file_digest,
    mapped_code,
    open_devices,
)
from draftmill.outcome import BadConfiguration, Unavailable

_PACKAGE = "xllamacpp"
_ELF = b"\x7fELF"
_CHILD = "draftmill.measurement.servers.xllamacpp_server"
# Variables that choose devices, kernels or thread counts: they belong to what was measured.
_TELLING = ("GGML_", "OMP_", "GOMP_", "KMP_", "LD_", "HIP_", "HSA_", "ROCR_", "CUDA_", "VK_", "MESA_", "ONEAPI_", "ZE_")
_USED = re.compile(r"using device (?P<name>.+?)(?: - \d+ MiB free)?$")
_LISTED = re.compile(r"(?:^|:) {2,}- (?P<name>\S+) *: (?P<description>.+) \(\d+ MiB, \d+ MiB free\)$")
_CPU = re.compile(r"\bCPU : (?P<features>(?:\w+ = \d+ \| ?)+)")
_CPU_LIBRARY = re.compile(r"libggml-cpu-(?P<variant>[\w.-]+?)\.so")


@dataclass(frozen=True)
class Provider:
    """How to start a llama-server.

    `program`: the file whose code is the engine; `command`: what comes before the flags, and must become the server by
    exec, not start it; `build`: what the package says where the server itself does not know.
    """

    name: str
    program: Path
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    build: str | None = None

    def digest(self) -> str:
        """SHA-256 of `program`."""
        return file_digest(self.program)


@dataclass(frozen=True)
class What:
    """What ran. `executable` and `digest` are the engine's file; `build` as the server says it, else its package.

    `libraries`: all code the process had mapped; `devices`: as the engine's log names them; `nodes`: device files that
    it had open; `variant`: which CPU kernels (a dispatched library, or the features compiled in); `environment`: the
    variables that choose devices, kernels and threads.
    """

    executable: str
    digest: str
    build: str
    libraries: tuple[Mapped, ...]
    devices: tuple[str, ...]
    nodes: tuple[str, ...]
    variant: str | None
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def xllamacpp() -> Provider:
    """The xllamacpp package in a child process. Raises BadConfiguration when it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [path for folder in folders for path in sorted(Path(folder).glob(f"{_PACKAGE}*.so"))]
    if not found:
        raise BadConfiguration(
            f"Measuring needs the package {_PACKAGE} (install draftmill[engine]) or a llama-server that you name.",
            code="providers.missing",
            where=_PACKAGE,
        )
    return Provider(
        name=_PACKAGE,
        program=found[0].resolve(),
        command=(sys.executable, "-m", _CHILD),
        build=f"{_PACKAGE} {version(_PACKAGE)}",
    )


def llama_server(
    path: Path | str,
    *,
    library_path: tuple[Path, ...] = (),
    extra_environment: Mapping[str, str] = MappingProxyType({}),
    prefix: tuple[str, ...] = (),
) -> Provider:
    """A llama-server that the user names, by path or by its name on PATH.

    `prefix`: what starts it, such as a dynamic loader with its options. Raises BadConfiguration when there is none.
    """
    found = shutil.which(str(path)) if not prefix else str(path)
    if not found or not Path(found).is_file():
        raise BadConfiguration(
            f"{path} is no executable file; name a llama-server by its path.", code="providers.missing", where=str(path)
        )
    program = Path(found).resolve()
    joined = os.pathsep.join(str(folder) for folder in library_path)
    libraries = {"LD_LIBRARY_PATH": joined} if joined else {}
    return Provider("llama-server", program, (*prefix, str(program)), libraries | dict(extra_environment))


def check_program(provider: Provider) -> None:
    """Raises BadConfiguration for a script: what it starts may outlive it, and is not what was named."""
    with provider.program.open("rb") as file:
        head = file.read(len(_ELF))
    if head != _ELF:
        raise BadConfiguration(
            f"{provider.program} is no program but a script or another kind of file: name the llama-server itself, "
            "with its library path; what has to start it, such as a loader, is the prefix of a device's engine.",
            code="providers.script",
            where=str(provider.program),
        )


def observe(provider: Provider, pid: int, build_info: str, log: str) -> What:
    """Reads what process `pid` is. Raises Unavailable where it does not run the provider's program as it is on disk."""
    libraries = mapped_code(pid)
    program = str(provider.program)
    engine = next((mapped for mapped in libraries if os.path.realpath(mapped.path) == program), None)
    if engine is None or engine.sha256 is None:
        raise Unavailable(
            f"process {pid} does not run {program} as it is on disk now: a wrapper starts something else, or the file "
            "was replaced meanwhile. Name the program itself and leave it alone during a measurement.",
            code="providers.other_program",
            where=program,
        )
    told = provider.build if provider.build and build_info.endswith("-unknown") else build_info
    variables = {name: value for name, value in sorted(environment(pid).items()) if name.startswith(_TELLING)}
    return What(
        executable=engine.path,
        digest=engine.sha256,
        build=told,
        libraries=tuple(libraries),
        devices=read_devices(log),
        nodes=tuple(open_devices(pid)),
        variant=read_variant(log, libraries),
        arguments=tuple(arguments(pid)),
        environment=variables,
    )


def read_devices(log: str) -> tuple[str, ...]:
    """The devices that the log names: "using device ..." where it says so, else the list of all it found."""
    lines = log.splitlines()
    used = [match["name"] for line in lines if (match := _USED.search(line))]
    listed = [f"{match['name']}: {match['description']}" for line in lines if (match := _LISTED.search(line))]
    return tuple(dict.fromkeys(used or listed))


def read_variant(log: str, libraries: list[Mapped]) -> str | None:
    """The CPU kernels: the variant in the name of the dispatched library, and the features that the log lists as on."""
    names = [match["variant"] for library in libraries if (match := _CPU_LIBRARY.search(library.path))]
    found = _CPU.search(log)
    features = re.findall(r"(\w+) = [1-9]", found["features"]) if found else []
    return " ".join([*names, *features]) or None
