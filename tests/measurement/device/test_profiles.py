"""Profiles of devices: what a file may say, and what is told of one that is wrong."""

import os
from pathlib import Path

import pytest

from draftmill.measurement.device.profiles import CPU, UNLIMITED, Device, find_device, load_devices
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.outcome import BadConfiguration, Refused
from tests.support.inputs import ROOT

SHIPPED = ROOT / "config" / "devices.yaml"
SERVER = "engine: {llama_server: llama-server}"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "devices.yaml"
    path.write_text(text)
    return path


def told(tmp_path: Path, text: str) -> list[str]:
    """The lines of the error, without the file's name."""
    path = written(tmp_path, text)
    with pytest.raises(BadConfiguration) as caught:
        load_devices(path)
    assert caught.value.code == "device.file"
    return [line.removeprefix(f"{path}, ") for line in str(caught.value).splitlines()]


def test_without_a_file_there_is_the_processor() -> None:
    assert load_devices(None) == {"cpu": CPU}
    assert CPU.provider().name == "xllamacpp"


def test_the_shipped_file_names_the_processor_an_amd_gpu_and_an_xdna_npu() -> None:
    devices = load_devices(SHIPPED)
    assert list(devices) == ["cpu", "amd-igpu", "xdna-npu"]
    assert devices["cpu"] == CPU
    gpu, npu = devices["amd-igpu"], devices["xdna-npu"]
    assert [(str(node.path), node.shared) for node in gpu.nodes] == [
        ("/dev/kfd", True),
        ("/dev/dri/renderD128", False),
    ]
    assert gpu.settings_options() == {"gpu_layers": 99, "device": "HRX0", "extra": ("--flash-attn", "on")}
    assert gpu.drafting_options() == {"gpu_layers": 99, "device": "HRX0"}
    assert [str(node.path) for node in npu.nodes] == ["/dev/accel/accel0"]
    assert npu.memlock == UNLIMITED


def test_its_options_are_those_of_settings_and_drafting() -> None:
    gpu = load_devices(SHIPPED)["amd-igpu"]
    drafting = Drafting(Path("d"), n_max=4, n_min=0, p_min=0.0, **gpu.drafting_options())
    settings = Settings(Path("t"), context=1, threads=1, draft=drafting, **gpu.settings_options())
    assert (settings.device, drafting.device) == ("HRX0", "HRX0")


def test_a_profile_names_the_engine_its_libraries_and_its_variables(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("")
    program.chmod(0o755)
    path = written(
        tmp_path,
        f"""devices:
  gpu:
    engine:
      llama_server: {program}
      library_path: [/opt/a, /opt/b]
      environment: {{HSA_OVERRIDE_GFX_VERSION: 11.5.1, HSA_ENABLE_SDMA: 0}}
""",
    )
    provider = find_device(path, "gpu").provider()
    assert provider.command == (str(program),)
    assert dict(provider.environment) == {
        "LD_LIBRARY_PATH": "/opt/a:/opt/b",
        "HSA_OVERRIDE_GFX_VERSION": "11.5.1",
        "HSA_ENABLE_SDMA": "0",
    }


def test_words_that_yaml_takes_for_something_else_stay_words(tmp_path: Path) -> None:
    path = written(tmp_path, f"devices:\n  gpu:\n    {SERVER}\n    extra: [-fa, on, --seed, 0o17]\n    device: no\n")
    device = find_device(path, "gpu")
    assert (device.extra, device.device) == (("-fa", "on", "--seed", "0o17"), "no")


def test_a_profile_travels_as_json() -> None:
    for device in load_devices(SHIPPED).values():
        assert Device.model_validate(device.model_dump(mode="json")) == device


def test_every_wrong_line_is_told_by_its_number(tmp_path: Path) -> None:
    lines = told(
        tmp_path,
        """devices:
  gpu:
    engine:
      llama_serve: /opt/llama-server
      library_path: [/opt/lib, lib]
    gpu_layers: all
    memlock: much
  npu: 3
  Big:
    engine: xllamacpp
  other:
    engine: xllamacp
""",
    )
    assert [line.partition(": ")[0] for line in lines] == [
        "line 3, gpu.engine.llama_server",
        "line 4, gpu.engine.llama_serve",
        "line 5, gpu.engine.library_path.1",
        "line 6, gpu.gpu_layers",
        "line 7, gpu.memlock",
        "line 8, npu",
        "line 9, Big",
        "line 12, other.engine",
    ]
    assert "not permitted" in lines[1]
    assert "absolute path" in lines[2]


@pytest.mark.parametrize(
    ("profile", "place", "word"),
    [
        ("description: no engine", "line 2, gpu.engine", "required"),
        ("engine: {llama_server: bin/llama-server}", "line 3, gpu.engine.llama_server", "absolute"),
        ("engine: {llama_server: ../llama-server}", "line 3, gpu.engine.llama_server", "absolute"),
        (
            "engine: {llama_server: x, environment: {LD_LIBRARY_PATH: /x}}",
            "line 3, gpu.engine",
            "library_path",
        ),
        (SERVER + "\n    gpu_layers: -1", "line 4, gpu.gpu_layers", "greater"),
        (SERVER + "\n    memlock: -2", "line 4, gpu.memlock", "greater"),
        (SERVER + "\n    lock: My GPU", "line 4, gpu.lock", "lower-case"),
        (SERVER + "\n    nodes: [{path: dri}]", "line 4, gpu.nodes.0.path", "absolute"),
        (SERVER + "\n    nodes: [{path: /dev/x, grp: 1}]", "line 4, gpu.nodes.0.grp", "not permitted"),
        (SERVER + "\n    name: x", "line 2, gpu", "its name already"),
        (SERVER + "\n    device: a\n    device: b", "line 5, devices.gpu.device", "given twice"),
    ],
)
def test_one_thing_wrong_is_one_line(tmp_path: Path, profile: str, place: str, word: str) -> None:
    [line] = told(tmp_path, f"devices:\n  gpu:\n    {profile}\n")
    assert line.partition(": ")[0] == place
    assert word in line


@pytest.mark.parametrize("text", ["", "[]", "devices: 3", "gpu: {}", "devices: {}\nmore: {}", "devices: [", "a: \x00"])
def test_a_file_that_is_something_else_is_told(tmp_path: Path, text: str) -> None:
    [line, *_] = told(tmp_path, text)
    assert "must hold one mapping" in line or "cannot be read" in line


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="cannot be read"):
        load_devices(tmp_path / "absent.yaml")


def test_an_unknown_name_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(Refused, match="known are amd-igpu, cpu, xdna-npu") as caught:
        find_device(SHIPPED, "gpu")
    [refusal] = caught.value.refusals
    assert (refusal.code, refusal.measured) == ("device.unknown", "gpu")
    assert refusal.expected == ["amd-igpu", "cpu", "xdna-npu"]


TWO = """devices:
  one:
    {server}
    {lock}
    nodes: [{{path: /dev/dri/renderD128{shared}}}]
  two:
    {server}
    {lock}
    nodes: [{{path: /dev/dri/renderD128{shared}}}]
"""


def test_two_profiles_of_one_node_need_one_lock(tmp_path: Path) -> None:
    [line] = told(tmp_path, TWO.format(server=SERVER, lock="", shared=""))
    assert line.startswith("line 9, two.nodes: /dev/dri/renderD128 is also one's")


def test_a_link_to_a_node_is_that_node(tmp_path: Path) -> None:
    link = tmp_path / "render"
    link.symlink_to("/dev/null")
    text = TWO.format(server=SERVER, lock="", shared="").replace("/dev/dri/renderD128", "/dev/null", 1)
    [line] = told(tmp_path, text.replace("/dev/dri/renderD128", str(link)))
    assert f"{link} is also one's" in line


@pytest.mark.parametrize(("lock", "shared"), [("lock: gpu", ""), ("", ", shared: true")])
def test_one_lock_or_a_node_that_is_shared_will_do(tmp_path: Path, lock: str, shared: str) -> None:
    devices = load_devices(written(tmp_path, TWO.format(server=SERVER, lock=lock, shared=shared)))
    assert {device.lock for device in devices.values()} == ({"cpu", "gpu"} if lock else {"cpu", "one", "two"})


def test_the_processor_can_be_described_otherwise(tmp_path: Path) -> None:
    path = written(tmp_path, f"devices:\n  cpu:\n    {SERVER}\n    extra: [--numa, isolate]\n")
    assert find_device(path, "cpu").extra == ("--numa", "isolate")


def test_an_engine_that_is_not_there_is_told_when_it_is_wanted(tmp_path: Path) -> None:
    device = find_device(written(tmp_path, "devices:\n  gpu:\n    engine: {llama_server: /nowhere/x}\n"), "gpu")
    with pytest.raises(BadConfiguration, match="/nowhere/x is no executable file"):
        device.provider()
    assert os.fspath(device.engine.llama_server) == "/nowhere/x"  # type: ignore[union-attr]
