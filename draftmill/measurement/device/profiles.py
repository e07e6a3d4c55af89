"""Profiles of the devices that a measurement can run on: `cpu`, and those that a devices file names.

The file is YAML with one mapping, `devices`: name -> profile (config/devices.yaml shows the keys). A profile says which
engine runs, how the device is named to it, and what has to be there. A key that is not known is an error.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from draftmill.measurement.servers.providers import Provider, llama_server, xllamacpp
from draftmill.outcome import BadConfiguration, Refusal, Refused
from draftmill.settings_file import Place, read_mapping

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_WHERE_CODE_LIES = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT")
UNLIMITED = -1


def _absolute(path: Path) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise ValueError("must be an absolute path without ..")
    return path


def _program(path: Path) -> Path:
    return path if len(path.parts) == 1 else _absolute(path)


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("must be lower-case letters, digits, - and _, 40 at most, a letter or digit first")
    return text


Absolute = Annotated[Path, AfterValidator(_absolute)]
Name = Annotated[str, AfterValidator(_name)]
Bytes = Annotated[int, BeforeValidator(lambda value: UNLIMITED if value == "unlimited" else value), Field(ge=UNLIMITED)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Node(Part):
    """A device file that the engine opens.

    group: the number of the group that a container's process is put into to open it; without one it is the node's own,
    read when it is used. Numbers, since names of groups mean nothing in a container. shared: others may have it open
    at the same time (/dev/kfd, of every AMD GPU). required: without it the device does not work.
    """

    path: Absolute
    group: int | None = Field(default=None, ge=0)
    shared: bool = False
    required: bool = True


class Engine(Part):
    """A llama-server of the host or of the image: its path (or name on PATH), what it is started with, its libraries.

    mounts: folders and files of the host that a container sees under the same path, read-only: the binary, its
    libraries, the runtime. None when the image brings the engine. prefix: what starts the binary, such as a loader.
    """

    llama_server: Annotated[Path, AfterValidator(_program)]
    library_path: tuple[Absolute, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    prefix: tuple[str, ...] = ()
    mounts: tuple[Absolute, ...] = ()

    @model_validator(mode="after")
    def _check_environment(self) -> Self:
        if wrong := sorted(name for name in self.environment if name in _WHERE_CODE_LIES):
            raise ValueError(f"{', '.join(wrong)} in environment: give folders of libraries as library_path")
        return self


_TAGS = ("(package)", "(server)")
AnyEngine = Annotated[
    Annotated[Literal["xllamacpp"], Tag(_TAGS[0])] | Annotated[Engine, Tag(_TAGS[1])],
    Discriminator(lambda value: _TAGS[0] if isinstance(value, str) else _TAGS[1]),
]


class Device(Part):
    """One profile.

    gpu_layers, device: --gpu-layers and --device of the target and, with the draft_ names, of the draft; extra: further
    flags of this engine. memlock: bytes that the process must be able to lock, or "unlimited" (-1). needs: label ->
    file or folder that must be there (driver, runtime). modules: kernel modules. versions: label -> file to read a
    version from, where it can be read. memory: label -> file of sysfs with the bytes in use. lock: profiles with the
    same one are the same hardware; the profile's own name unless given.
    """

    name: Name
    description: str = ""
    engine: AnyEngine
    gpu_layers: int | None = Field(default=None, ge=0)
    device: str | None = None
    draft_gpu_layers: int | None = Field(default=None, ge=0)
    draft_device: str | None = None
    extra: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    memlock: Bytes | None = None
    needs: dict[str, Absolute] = Field(default_factory=dict)
    modules: tuple[str, ...] = ()
    versions: dict[str, Absolute] = Field(default_factory=dict)
    memory: dict[str, Absolute] = Field(default_factory=dict)
    lock: Name

    @model_validator(mode="before")
    @classmethod
    def _lock_by_name(cls, value: Any) -> Any:
        return {"lock": value.get("name"), **value} if isinstance(value, dict) else value

    def provider(self) -> Provider:
        """The engine. Raises BadConfiguration where it is not there."""
        if isinstance(self.engine, str):
            return xllamacpp()
        return llama_server(
            self.engine.llama_server,
            library_path=self.engine.library_path,
            extra_environment=self.engine.environment,
            prefix=self.engine.prefix,
        )

    def settings_options(self) -> dict[str, Any]:
        """The device's part of `flags.Settings`, as keyword arguments; that of `flags.Drafting` is drafting_options."""
        return {"gpu_layers": self.gpu_layers, "device": self.device, "extra": self.extra}

    def drafting_options(self) -> dict[str, Any]:
        """The device's part of `flags.Drafting`, as keyword arguments."""
        return {"gpu_layers": self.draft_gpu_layers, "device": self.draft_device}


CPU = Device(name="cpu", description="the processor, through the xllamacpp package", engine="xllamacpp", lock="cpu")


def load_devices(path: Path | None) -> dict[str, Device]:
    """Every profile of the file, by name, and `cpu`, which it may describe otherwise. None: `cpu` alone.

    Raises BadConfiguration that names every wrong line.
    """
    if path is None:
        return {CPU.name: CPU}
    mapping = read_mapping(path, "devices")
    found: dict[str, Device] = {CPU.name: CPU}
    wrong: list[tuple[Place, str]] = []
    for name, profile in mapping.items():
        if not isinstance(profile, dict) or "name" in profile:
            wrong.append(((name,), "must be a mapping, without a key `name`: it has its name already"))
            continue
        try:
            found[name] = Device.model_validate({**profile, "name": _name(name)})
        except ValidationError as error:
            wrong += [_problem(name, problem["loc"], problem["msg"]) for problem in error.errors()]
        except ValueError as error:
            wrong.append(((name,), str(error)))
    wrong += _check_locks(found)
    if wrong:
        raise BadConfiguration(mapping.explain(wrong), code="device.file", where=str(path))
    return found


def find_device(path: Path | None, name: str) -> Device:
    """The profile of that name. Raises Refused that lists the known ones, and what `load_devices` does."""
    devices = load_devices(path)
    if name not in devices:
        place = f"in {path}" if path else "without a devices file"
        raise Refused(
            Refusal(
                "device.unknown",
                str(path or "--device"),
                name,
                sorted(devices),
                f"there is no device {name!r} {place}; known are {', '.join(sorted(devices))}. "
                "Name a file that describes it, as config/devices.yaml does.",
            )
        )
    return devices[name]


def _problem(name: str, place: Place, message: str) -> tuple[Place, str]:
    """As the file's author knows it: without the tags of the union, and without pydantic's own words."""
    return (name, *(part for part in place if part not in _TAGS)), message.removeprefix("Value error, ")


def _check_locks(devices: dict[str, Device]) -> list[tuple[Place, str]]:
    """Two profiles of one device under two locks could hold it both at once."""
    owner: dict[Path, Device] = {}
    wrong: list[tuple[Place, str]] = []
    for device in devices.values():
        for node in device.nodes:
            other = owner.setdefault(node.path.resolve(), device)
            if not node.shared and other.lock != device.lock:
                sentence = (
                    f"{node.path} is also {other.name}'s: give both the same lock, or say shared: true at the node"
                )
                wrong.append(((device.name, "nodes"), sentence))
    return wrong
