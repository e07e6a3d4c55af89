"""What is measured: the two files, whether they pair at all, and the regime that the figures will belong to."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill.digest import sha256_file, sha256_json
from draftmill.gguf.header import read_header
from draftmill.measurement.record import File, Library, Ran
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.live_process import file_digest
from draftmill.measurement.servers.providers import What
from draftmill.speculation.regime import Regime, Route

CACHE_TYPE = "f16"
"""Of keys and values, where nothing else is asked for; given to the server always, since defaults move."""


@dataclass(frozen=True)
class Encoded:
    """A prompt as ids of the target's vocabulary."""

    name: str
    kind: str
    tokens: tuple[int, ...]


def describe(path: Path) -> File:
    """Raises Refused where the file is no whole GGUF, OSError where it cannot be read."""
    fields = read_header(path).fields
    label = fields.get("general.name")
    return File(
        name=path.name,
        sha256=file_digest(path),
        size=path.stat().st_size,
        architecture=str(fields.get("general.architecture") or "not stated"),
        label=label if isinstance(label, str) else None,
    )


def describe_folder(folder: Path, architecture: str | None) -> File:
    """A Hugging Face folder or a package. Raises OSError."""
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    return File(
        name=folder.resolve().name,
        sha256=folder_digest(paths),
        size=sum(path.stat().st_size for path in paths),
        architecture=architecture or "not stated",
        label=None,
    )


def folder_digest(paths: Sequence[Path]) -> str:
    """SHA-256 of the canonical JSON of [name, SHA-256] of each file, in their order."""
    return sha256_json([[path.name, sha256_file(path)] for path in paths])


def digest_of(prompts: Sequence[Encoded]) -> str:
    """SHA-256 of the prompts as they are sent, in their order."""
    return sha256_json([[prompt.name, list(prompt.tokens)] for prompt in prompts])


def regime_of(
    route: Route,
    files: tuple[File, File],
    settings: Settings,
    drafting: Drafting,
    prompts: Sequence[Encoded],
    budget: int,
    seed: int,
    what: What,
    backend: str,
    device: str,
) -> Regime:
    """files: (target, draft). device: the profile's name, used where the engine names no device of its own.

    On the token-exact route drafts are a chain of the draft's own best tokens, without a gate.
    """
    counted = route == "counters"
    return Regime(
        drafter=files[1].sha256,
        target=files[0].sha256,
        route=route,
        spec_type=drafting.spec_type if counted else "greedy chain",
        n_max=drafting.n_max,
        n_min=drafting.n_min if counted else None,
        p_min=drafting.p_min if counted else None,
        fallback=None,
        block=None,
        budget=budget,
        prompts=digest_of(prompts),
        temperature=0.0,
        seed=seed,
        backend=backend,
        device=", ".join(what.devices) or device,
        threads=settings.threads,
        target_kv=f"{settings.cache_type_k}/{settings.cache_type_v}",
        drafter_kv=f"{drafting.cache_type_k}/{drafting.cache_type_v}",
        build=f"{what.build} {what.digest[:12]}",
        kernel=what.variant or "not stated",
    )


def ran(provider: str, what: What) -> Ran:
    return Ran(
        provider=provider,
        executable=what.executable,
        digest=what.digest,
        build=what.build,
        libraries=tuple(Library(path=each.path, sha256=each.sha256) for each in what.libraries),
        devices=what.devices,
        nodes=what.nodes,
        variant=what.variant,
        arguments=what.arguments,
        environment=dict(what.environment),
    )
