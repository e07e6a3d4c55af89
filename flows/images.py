"""The images that jobs run in: which job uses which, how they are built, and whether they are as new as the source.

An image is built twice from the same layers: the first build is asked what it holds, the second writes the answer into
labels.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ContainerError, ImageNotFound

from draftmill import __version__
from draftmill.digest import canonical_json
from draftmill.kernel_lock import hold
from draftmill.measurement.device.lock import lock_folder
from draftmill.outcome import BadConfiguration, Unavailable
from draftmill.progress import Progress, silent
from flows.image_builders import NotBuilt, Order, builder

ROOT = Path(__file__).resolve().parents[1]
SOURCE_LABEL = "org.draftmill.source"
VERSIONS_LABEL = "org.draftmill.versions"
BASE_LABEL = "org.opencontainers.image.base.digest"

LONGEST_BUILD_S = 3600

CONTEXT = (".dockerignore", "requirements/jobs.txt", "draftmill", "jobs")
"""What the Dockerfiles copy, and the file that keeps the rest out."""


@dataclass(frozen=True)
class Image:
    """name: the folder below images/; public_base: what its Dockerfile builds on, by the argument base_argument;
    debian: packages whose versions its labels state; packages: a further lock file that it copies; settings: build
    arguments that variables of the environment give, argument -> variable."""

    name: str
    public_base: str
    debian: tuple[str, ...]
    base_argument: str = "BASE_IMAGE"
    packages: str = ""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def base(self) -> str:
        """DRAFTMILL_JOBS_BASE, _STOCK_BASE, ... name another: a digest, a company's own, a device's engine."""
        return os.environ.get(f"DRAFTMILL_{self.name.upper()}_BASE", self.public_base)

    @property
    def tag(self) -> str:
        return f"draftmill/{self.name}:{__version__}"

    @property
    def dockerfile(self) -> str:
        return f"images/{self.name}/Dockerfile"

    @property
    def below(self) -> "Image | None":
        """The one of ours that it is built on."""
        return next((image for image in IMAGES.values() if image.tag == self.base), None)

    @property
    def parts(self) -> tuple[str, ...]:
        """Files and folders of the source that it is built from."""
        return (self.dockerfile, *CONTEXT, *([self.packages] if self.packages else []))

    @property
    def arguments(self) -> dict[str, str]:
        """Build arguments: the base, and the settings that are given."""
        given = {argument: os.environ[variable] for argument, variable in self.settings if os.environ.get(variable)}
        return {self.base_argument: self.base} | given


JOBS = Image("jobs", "python:3.11-slim-bookworm", ("libc6", "libgomp1"))
STOCK = Image(
    "stock",
    "debian:forky",
    ("libc6", "libggml0", "libllama0", "llama.cpp-tools", "python3-gguf", "python3-torch", "python3-transformers"),
)
MEASURE = Image("measure", JOBS.tag, ("libc6", "libgomp1"), base_argument="ENGINE")
TARGET = Image(
    "target",
    JOBS.tag,
    ("libc6", "libgomp1"),
    base_argument="BASE",
    packages="requirements/target.txt",
    settings=(("TORCH", "DRAFTMILL_TARGET_TORCH"), ("INDEX", "DRAFTMILL_TARGET_INDEX")),
)
IMAGES = {image.name: image for image in (JOBS, STOCK, MEASURE, TARGET)}
DEFAULT = (JOBS.name, STOCK.name, MEASURE.name)
"""What `images build` makes where none is named; torch has gigabytes, and is asked for."""
MEASURING = frozenset({"preflight", "measure_speed", "measure_acceptance"})
"""Jobs that work on a device, in the image that has its engine."""


def image_for(job: str, parameters: dict[str, Any]) -> Image:
    """Stock tools live in the stock image, a device's engine in the measure image, torch in the target image; all else
    runs in the jobs image."""
    if job in MEASURING:
        return TARGET if (parameters.get("request") or {}).get("loop") else MEASURE
    tool = {"convert": "converter", "dflash_convert": "converter", "quantize": "quantizer"}.get(job)
    return STOCK if tool and parameters.get(tool) == "stock" else JOBS


def source_digest(image: Image) -> str:
    """sha256 over the build arguments, and the names and contents of all files that the image is built from; of the
    image below it too, of which another base or Dockerfile makes both anew."""
    digest = hashlib.sha256(canonical_json(image.arguments) + b"\0")
    if image.below:
        digest.update(source_digest(image.below).encode())
    for part in image.parts:
        place = ROOT / part
        files = [place] if place.is_file() else sorted(place.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(ROOT).as_posix()}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def is_current(client: docker.DockerClient, image: Image) -> bool:
    """Is the image there, and built from this source?"""
    try:
        labels = client.images.get(image.tag).labels
    except ImageNotFound:
        return False
    return labels.get(SOURCE_LABEL) == source_digest(image)


def build_images(
    client: docker.DockerClient, names: Iterable[str] = DEFAULT, progress: Progress = silent
) -> dict[str, str]:
    """Builds what is not current, one process at a time; tag -> image ID of each. Progress counts build steps.

    Raises BadConfiguration for an unknown name or where there is no source, Unavailable when a build fails.
    """
    built: dict[str, str] = {}
    for name in names:
        if name not in IMAGES:
            raise BadConfiguration(f"There is no image {name!r}; there are {', '.join(IMAGES)}.", code="images.unknown")
        image = IMAGES[name]
        if not (ROOT / image.dockerfile).is_file():
            sentence = f"Building needs a source checkout: {ROOT / image.dockerfile} is not there."
            raise BadConfiguration(sentence, code="images.no_source")
        built |= build_images(client, [image.below.name] if image.below else [], progress)
        lock = lock_folder() / f"image-{name}.lock"
        with hold(lock, f"the image {name}", run="images build", wait_s=LONGEST_BUILD_S, progress=progress):
            if not is_current(client, image):
                _build_with_versions(client, image, progress)
        built[image.tag] = str(client.images.get(image.tag).id)
    return built


def _build_with_versions(client: docker.DockerClient, image: Image, progress: Progress) -> None:
    labels = {SOURCE_LABEL: source_digest(image)}
    arguments = {
        **image.arguments,
        "VERSION": __version__,
        "REVISION": _revision(image),
        "SOURCE": _origin(),
    }
    # A name of its own: another who builds on this engine may have other locks, as a worker in a container.
    plain = f"draftmill/{image.name}:building-{uuid.uuid4().hex[:12]}"
    build = builder(client, ROOT)

    def make(tag: str, progress: Progress) -> None:
        try:
            for done, total in build(Order(image.dockerfile, tag, arguments, labels)):
                progress(f"image {image.name}, steps", done, total)
        except NotBuilt as error:
            sentence = (
                f"The image {image.name} was not built. If its base {image.base} cannot be had from a registry here, "
                f".ci/bases makes one from Debian's packages. The builder's last lines:\n{error}"
            )
            raise Unavailable(sentence, code="images.build") from error

    make(plain, progress)
    try:
        labels[VERSIONS_LABEL] = canonical_json(_versions(client, image, plain)).decode()
        if base := _base_digest(client, image):
            labels[BASE_LABEL] = base
        make(image.tag, silent)
    finally:
        client.images.remove(plain, noprune=True)


def _versions(client: docker.DockerClient, image: Image, tag: str) -> dict[str, Any]:
    """What is in the image, as its own package managers tell."""
    listing = (
        "import importlib.metadata as m, json, platform; "
        "print(json.dumps({d.name: d.version for d in m.distributions()} | {'python': platform.python_version()}))"
    )
    query = ["dpkg-query", "-W", "-f", r"${Package} ${Version}\n", *image.debian]
    options: dict[str, Any] = {"remove": True, "network_mode": "none", "read_only": True}
    try:
        python = json.loads(client.containers.run(tag, ["python", "-c", listing], **options))
        debian = client.containers.run(tag, query, **options).decode()
    except (ContainerError, APIError) as error:
        raise Unavailable(f"The new image {image.name} does not run: {error}", code="images.build") from error
    return {"python": python, "debian": dict(line.split() for line in debian.splitlines())}


def _base_digest(client: docker.DockerClient, image: Image) -> str | None:
    """The registry's digest where the base came from one, else the image ID."""
    try:
        base = client.images.get(image.base)
    except ImageNotFound:  # BuildKit may keep it to itself
        return None
    digests = base.attrs.get("RepoDigests") or []
    return str(digests[0]).partition("@")[2] if digests else str(base.id)


def _git(*arguments: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    return subprocess.run([git, "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout.strip()


def _revision(image: Image) -> str:
    """The last commit that touched what the image is built from, so that others leave the image as it is."""
    parts = (*image.parts, *(image.below.parts if image.below else ()))
    commit = _git("log", "-1", "--format=%H", "--", *parts)
    return commit + ("-dirty" if _git("status", "--porcelain", "--", *parts) else "") if commit else "unknown"


def _origin() -> str:
    address = _git("remote", "get-url", "origin")
    return address if re.fullmatch(r"https://[^@\s]+", address) else "unknown"
