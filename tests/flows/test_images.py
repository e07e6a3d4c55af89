import json
import re
from pathlib import Path
from typing import Any

import docker
import pytest

from draftmill.kernel_lock import hold
from draftmill.measurement.device.lock import LOCKS
from draftmill.outcome import BadConfiguration, Temporary, Unavailable
from flows import images
from flows.image_builders import NotBuilt, Order, builder, by_engine
from flows.images import (
    JOBS,
    MEASURE,
    STOCK,
    TARGET,
    VERSIONS_LABEL,
    Image,
    build_images,
    image_for,
    is_current,
    source_digest,
)
from tests.support.engine import engine, jobs_image, measure_image, stock_image

ROOT = Path(__file__).resolve().parents[2]
TINY = "draftmill/tiny:test"


@pytest.mark.parametrize(
    ("job", "parameters", "image"),
    [
        ("convert", {"converter": "stock"}, STOCK),
        ("convert", {"converter": "native"}, JOBS),
        ("dflash_convert", {"converter": "stock"}, STOCK),
        ("dflash_convert", {"converter": "native"}, JOBS),
        ("quantize", {"quantizer": "stock"}, STOCK),
        ("quantize", {"quantizer": "native"}, JOBS),
        ("check", {"quantizer": "stock"}, JOBS),
        ("download", {}, JOBS),
        ("preflight", {}, MEASURE),
        ("measure_speed", {}, MEASURE),
        ("measure_acceptance", {}, MEASURE),
        ("measure_acceptance", {"request": {"what": "acceptance", "loop": None}}, MEASURE),
        ("measure_acceptance", {"request": {"what": "acceptance", "loop": {"dtype": "float32"}}}, TARGET),
    ],
)
def test_stock_tools_and_device_work_alone_run_in_images_of_their_own(
    job: str, parameters: dict[str, Any], image: Image
) -> None:
    assert image_for(job, parameters) is image


def test_another_torch_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest(TARGET)
    monkeypatch.setenv("DRAFTMILL_TARGET_TORCH", "torch==2.13.0+rocm7.1")
    assert TARGET.arguments == {"BASE": JOBS.tag, "TORCH": "torch==2.13.0+rocm7.1"}
    assert source_digest(TARGET) != before
    assert MEASURE.arguments == {"ENGINE": JOBS.tag}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a file of each kind."""
    for name in ("images/jobs/Dockerfile", "requirements/jobs.txt", ".dockerignore", "draftmill/a.py", "jobs/b.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(images, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("images/jobs/Dockerfile", True),
        ("requirements/jobs.txt", True),
        (".dockerignore", True),
        ("draftmill/a.py", True),
        ("draftmill/part/new.py", True),
        ("jobs/b.py", True),
        ("jobs/__pycache__/b.pyc", False),
        ("flows/c.py", False),
        ("README.md", False),
    ],
)
def test_an_image_is_as_old_as_what_it_is_built_from(checkout: Path, name: str, counts: bool) -> None:
    before = source_digest(JOBS)
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("changed")
    assert (source_digest(JOBS) != before) == counts


def test_another_base_makes_another_image(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_digest(JOBS)
    monkeypatch.setenv("DRAFTMILL_JOBS_BASE", "registry.example/python@sha256:" + "0" * 64)
    assert JOBS.base.startswith("registry.example")
    assert STOCK.base == "debian:forky"
    assert source_digest(JOBS) != before


def test_what_lies_below_an_image_counts_too(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [source_digest(image) for image in (JOBS, MEASURE, TARGET, STOCK)]
    with (checkout / "images" / "jobs" / "Dockerfile").open("a") as file:
        file.write("RUN true\n")
    after = [source_digest(image) for image in (JOBS, MEASURE, TARGET, STOCK)]
    assert [one != other for one, other in zip(before, after, strict=True)] == [True, True, True, False]
    monkeypatch.setenv("DRAFTMILL_JOBS_BASE", "python:3.12")
    assert [source_digest(image) for image in (MEASURE, TARGET)] != after[1:3]


def test_what_a_dockerfile_copies_is_what_the_digest_covers() -> None:
    for image in (JOBS, STOCK, MEASURE):
        copied = re.findall(r"^COPY (\S+) ", (ROOT / image.dockerfile).read_text(), re.MULTILINE)
        assert set(copied) == set(images.CONTEXT) - {".dockerignore"}


@pytest.fixture(params=["found", "engine"])
def build(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The builder that is found here, and the engine's own."""
    client = engine()
    if request.param == "engine":
        return lambda order: by_engine(client, tmp_path, order)
    return builder(client, tmp_path)


@pytest.mark.docker
def test_each_builder_builds_with_arguments_and_labels_and_tells_its_steps(build: Any, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "FROM scratch\nCOPY Dockerfile /a\nCOPY Dockerfile /b\nARG WORD\nLABEL word=$WORD\n"
    )
    steps = list(build(Order("Dockerfile", TINY, {"WORD": "given"}, {"fact": '{"a": "b c"}'})))
    client = engine()
    try:
        assert client.images.get(TINY).labels == {"word": "given", "fact": '{"a": "b c"}'}
        assert steps and all(1 <= done <= total for done, total in steps)
    finally:
        client.images.remove(TINY)


@pytest.mark.docker
def test_each_builder_says_the_last_lines_of_a_build_that_failed(build: Any, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY absent /a\n")
    with pytest.raises(NotBuilt, match="absent"):
        list(build(Order("Dockerfile", TINY, {}, {})))


@pytest.mark.docker
def test_a_failed_build_names_the_base_and_how_to_make_one(checkout: Path) -> None:
    (checkout / "images/jobs/Dockerfile").write_text("FROM scratch\nCOPY absent /a\n")
    with pytest.raises(Unavailable, match=r"python:3\.11-slim-bookworm.*\.ci/bases"):
        build_images(engine(), ["jobs"])


@pytest.mark.docker
def test_a_base_that_is_named_is_built_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAFTMILL_JOBS_BASE", "draftmill.invalid/base:none")
    with pytest.raises(Unavailable, match=r"draftmill\.invalid/base:none"):
        build_images(engine(), ["jobs"])


@pytest.mark.docker
def test_two_commands_do_not_build_one_image_at_the_same_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOCKS, str(tmp_path))
    monkeypatch.setattr(images, "LONGEST_BUILD_S", 0)
    with (
        hold(tmp_path / "image-jobs.lock", "x", run="the other"),
        pytest.raises(Temporary, match="the image jobs is held by run the other"),
    ):
        build_images(engine(), ["jobs"])


@pytest.mark.docker
def test_an_unknown_image_and_a_place_without_source_are_named(checkout: Path) -> None:
    with pytest.raises(BadConfiguration, match="jobs, stock"):
        build_images(engine(), ["jbos"])
    with pytest.raises(BadConfiguration, match="source checkout"):
        build_images(engine(), ["stock"])


def _pinned() -> dict[str, str]:
    lock = (ROOT / "requirements/jobs.txt").read_text()
    return dict(re.findall(r"^(gguf|tokenizers|xllamacpp|huggingface-hub|boto3)==(\S+)", lock, re.MULTILINE))


def _check_labels(client: docker.DockerClient, image: Image) -> dict[str, Any]:
    built = client.images.get(image.tag)
    labels = built.labels
    versions: dict[str, Any] = json.loads(labels[VERSIONS_LABEL])
    installed = {name.replace("_", "-"): version for name, version in versions["python"].items()}
    assert _pinned().items() <= installed.items()
    assert set(versions["debian"]) == set(image.debian)
    assert labels["org.opencontainers.image.base.name"] == image.base
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", labels["org.opencontainers.image.base.digest"])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", labels["org.opencontainers.image.revision"])
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert built.attrs["Config"]["User"] == "65532:65532"
    return versions


@pytest.mark.docker
def test_the_jobs_image_states_what_it_holds_and_is_not_built_again() -> None:
    client = jobs_image()
    _check_labels(client, JOBS)
    assert is_current(client, JOBS)
    steps: list[int] = []
    built = build_images(client, ["jobs"], lambda what, done, total: steps.append(done))
    assert built == {JOBS.tag: client.images.get(JOBS.tag).id}
    assert steps == []


@pytest.mark.docker
def test_a_job_finds_the_kernels_compiled() -> None:
    client = jobs_image()
    code = (
        "from gguf.constants import GGMLQuantizationType as Type; "
        "from draftmill.gguf.ggml_library import load_library; "
        "from draftmill.gguf.quantize_tensor import admitted_encoder; "
        "print(admitted_encoder(Type.Q4_K, load_library()))"
    )
    contained: dict[str, Any] = {"remove": True, "network_mode": "none", "read_only": True, "tmpfs": {"/tmp": "noexec"}}
    said = client.containers.run(JOBS.tag, ["python", "-c", code], environment={"NUMBA_DEBUG_CACHE": "1"}, **contained)
    assert b"encode_q4_k" in said
    assert b"data loaded from" in said
    assert b"data saved to" not in said


@pytest.mark.docker
def test_the_measure_image_is_the_jobs_image_and_starts_no_server() -> None:
    client = measure_image()
    _check_labels(client, MEASURE)
    built, base = client.images.get(MEASURE.tag), client.images.get(JOBS.tag)
    assert built.attrs["RootFS"]["Layers"][: len(base.attrs["RootFS"]["Layers"])] == base.attrs["RootFS"]["Layers"]
    assert not built.attrs["Config"]["Entrypoint"]


@pytest.mark.docker
@pytest.mark.stock
@pytest.mark.slow
def test_the_stock_image_holds_llama_cpps_tools_and_they_start_with_a_read_only_root() -> None:
    client = stock_image()
    assert "llama.cpp-tools" in _check_labels(client, STOCK)["debian"]
    contained: dict[str, Any] = {"remove": True, "network_mode": "none", "read_only": True, "cap_drop": ["ALL"]}
    script = '"$DRAFTMILL_STOCK_PYTHON" "$DRAFTMILL_STOCK_CONVERTER" --help; llama-quantize --help || true'
    said = client.containers.run(STOCK.tag, ["sh", "-c", script], stderr=True, tmpfs={"/tmp": ""}, **contained).decode()
    assert "--outtype" in said
    assert "Q4_K_M" in said
