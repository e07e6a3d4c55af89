"""Which flags a llama-server takes, read from its own --help, and the command line that says exactly what is meant.

The names of the draft flags had four eras (ggml-org/llama.cpp pull requests): up to January 2026 --draft-max, -min and
-p-min, speculation on as soon as there is a draft; from #18471 --spec-type for n-gram drafters only; from #22397
--spec-draft-n-max and -n-min, the old names listed as removed and aborting, and draft (since #22964 draft-simple) a
spec type; from #23988 no speculation without it. Defaults changed meanwhile, so that every draft flag is always given.
"""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.measurement.servers.launch import launched
from draftmill.outcome import BadConfiguration, Refusal, Refused

_OPTION = re.compile(r" {0,2}(?P<names>-{1,2}[A-Za-z][\w-]*(?:, +-{1,2}[A-Za-z][\w-]*)*)(?P<rest>.*)")
_REMOVED = re.compile(r"argument has been removed|no longer (supported|available)", re.IGNORECASE)
_HELP_SECONDS = 60
_HELP_BYTES = 1 << 20

SPEC_TYPE = "--spec-type"
_DRAFT_MODEL_SPEC_TYPES = ("draft-simple", "draft")

# What the mill decides itself, by any name of each option. llama-server takes the last of two equal flags, so an extra
# one would win unseen.
_OWNED = """
    --model --model-url --hf-repo --hf-file --docker-repo --ctx-size --threads --parallel --gpu-layers --device
    --cache-type-k --cache-type-v --cache-ram --fit --offline
    --host --port --reuse-port --api-prefix --api-key --api-key-file --metrics --slots
    --verbosity --verbose --log-disable --log-file
    --model-draft --hf-repo-draft --threads-draft --gpu-layers-draft --device-draft
    --cache-type-k-draft --cache-type-v-draft --spec-type --spec-draft-sampling
    --spec-draft-n-max --spec-draft-n-min --draft-p-min --draft-max --draft-min
"""
_FAKE_ACCEPTANCE = "--spec-synth"


@dataclass(frozen=True)
class Drafting:
    """How to draft. `spec_type` "none" loads the draft and leaves it unused; p_min is a probability."""

    model: Path
    n_max: int
    n_min: int
    p_min: float
    spec_type: str = "draft-simple"
    threads: int | None = None
    gpu_layers: int | None = None
    device: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None


@dataclass(frozen=True)
class Settings:
    """All that decides how a server computes. `context` in tokens; None leaves an option to the server.

    `extra`: further flags of the binary, as a device profile names them.
    """

    model: Path
    context: int
    threads: int
    draft: Drafting | None = None
    gpu_layers: int | None = None
    device: str | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    extra: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """One entry of a help text: its names, the placeholder of its value ("" for a switch), whether it was removed."""

    names: tuple[str, ...]
    value: str
    removed: bool

    @property
    def choices(self) -> frozenset[str]:
        """The values that a placeholder such as [a|b] or a,b lists."""
        return frozenset(re.split(r"[|,]", self.value.strip("[]{}<>"))) - {""}


class Help:
    """The options of a binary, by each of their names."""

    def __init__(self, options: list[Option]) -> None:
        self._by_name = {name: option for option in options for name in option.names}

    def __getitem__(self, name: str) -> Option:
        return self._by_name[name]

    def aliases(self, name: str) -> tuple[str, ...]:
        """All names of the option, `name` included."""
        return self._by_name[name].names if name in self._by_name else (name,)

    def has(self, name: str) -> bool:
        """Whether the binary takes `name`; an option that is listed as removed aborts the start."""
        return name in self._by_name and not self._by_name[name].removed

    def first(self, *names: str) -> str | None:
        return next((name for name in names if self.has(name)), None)


def parse_help(text: str) -> Help:
    """Reads a help text of llama-server (descriptions follow indented) or of argparse."""
    options: list[Option] = []
    entries: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        if match := _OPTION.match(line):
            entries.append((match, []))
        elif entries:
            entries[-1][1].append(line.strip())
    for match, more in entries:
        # The value follows the names after one space, the description after two.
        value, _, described = match["rest"].partition("  ")
        description = " ".join([described.strip(), *more])
        names = tuple(re.split(r", +", match["names"]))
        options.append(Option(names, value.strip(), bool(_REMOVED.search(description))))
    return Help(options)


_read: dict[tuple[str, tuple[str, ...]], Help] = {}


def read_help(command: tuple[str, ...], digest: str, extra: Mapping[str, str]) -> Help:
    """The help of the binary with this digest, asked for once a process; `extra` variables as for a start.

    Raises BadConfiguration where it cannot be run or says nothing that reads as options.
    """
    if (digest, command) in _read:
        return _read[digest, command]
    where = command[-1]
    try:
        done = asked([*command, "--help"], extra, _HELP_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadConfiguration(
            f"{where} --help cannot be run ({error}); name a llama-server that starts on this machine.",
            code="flags.help",
            where=where,
        ) from error
    found = parse_help(done.stdout[:_HELP_BYTES].decode(errors="replace"))
    if done.returncode != 0 or found.first("--model", "-m") is None:
        last = "".join(done.stderr.decode(errors="replace").strip().splitlines()[-1:])
        raise BadConfiguration(
            f"{where} --help ends with code {done.returncode} and lists no --model ({last}): "
            "this is no llama-server, or its libraries are missing; give its library path.",
            code="flags.help",
            where=where,
        )
    _read[digest, command] = found
    return found


def asked(command: Sequence[str], extra: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    """What the command answers. Raises TimeoutExpired, after which nothing that it started is left, and OSError."""
    process = subprocess.Popen(
        launched(command, extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(os.environ),
        process_group=0,
    )
    try:
        out, err = process.communicate(timeout=seconds)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without anything llama-server reads as a flag, and without credentials.

    Every LLAMA_ variable binds to an option, and a stale LLAMA_ARG_DRAFT_MAX aborts new builds.
    """
    dropped = ("LLAMA_", "HF_", "HUGGING_FACE_", "AWS_", "PREFECT_", "LD_PRELOAD")
    return {name: value for name, value in environment.items() if not name.startswith(dropped)}


def check_environment(extra: Mapping[str, str]) -> None:
    """Raises Refused where variables that are to be set for a server are flags in disguise."""
    bad = sorted(name for name in extra if name.startswith("LLAMA_"))
    if bad:
        raise Refused(*(_refusal("flags.environment", name, extra[name], None, "give it as a flag") for name in bad))


def command_line(help_: Help, settings: Settings) -> list[str]:
    """The flags for `settings` in this binary's names, everything but --host and --port.

    Raises Refused with every setting that the binary cannot be told.
    """
    line: list[str] = []
    refusals: list[Refusal] = []

    def give(meaning: str, value: Any, *names: str, required: bool = True) -> None:
        name = help_.first(*names)
        if name:
            line.extend([name] if value is None else [name, str(value)])
        elif required:
            refusals.append(
                _refusal("flags.missing", names[0], None, list(names), f"this llama-server has no flag for {meaning}")
            )

    def give_if_set(meaning: str, value: Any, *names: str) -> None:
        if value is not None:
            give(meaning, value, *names)

    give("the model", settings.model, "--model", "-m")
    give("the context size", settings.context, "--ctx-size", "-c")
    give("the number of threads", settings.threads, "--threads", "-t")
    give("one slot", 1, "--parallel", "-np")
    give("the metrics endpoint", None, "--metrics")
    give("the slots endpoint", None, "--slots", required=False)
    give("no web page", None, "--no-ui", "--no-webui", required=False)
    # Level 4 tells the devices and the CPU features; level 5 would write a line a token.
    give("the log level", 4, "--verbosity", "--log-verbosity", "-lv", required=False)
    # Both change what is computed with the memory that happens to be free.
    give("no prompt cache in memory", 0, "--cache-ram", "-cram", required=False)
    give("no fitting to free memory", "off", "--fit", "-fit", required=False)
    give("no network", None, "--offline", required=False)
    give_if_set("GPU layers", settings.gpu_layers, "--gpu-layers", "--n-gpu-layers", "-ngl")
    give_if_set("the device", settings.device, "--device", "-dev")
    give_if_set("the type of cached keys", settings.cache_type_k, "--cache-type-k", "-ctk")
    give_if_set("the type of cached values", settings.cache_type_v, "--cache-type-v", "-ctv")

    if draft := settings.draft:
        give("the draft", draft.model, "--spec-draft-model", "--model-draft", "-md")
        give("the most tokens drafted", draft.n_max, "--spec-draft-n-max", "--draft-max")
        give("the fewest tokens drafted", draft.n_min, "--spec-draft-n-min", "--draft-min")
        give("the draft's least probability", draft.p_min, "--spec-draft-p-min", "--draft-p-min")
        give("greedy drafts", "greedy", "--spec-draft-sampling", required=False)
        give_if_set("the draft's threads", draft.threads, "--spec-draft-threads", "--threads-draft", "-td")
        give_if_set("the draft's GPU layers", draft.gpu_layers, "--spec-draft-ngl", "--gpu-layers-draft", "-ngld")
        give_if_set("the draft's device", draft.device, "--spec-draft-device", "--device-draft", "-devd")
        key_names = ("--spec-draft-type-k", "--cache-type-k-draft", "-ctkd")
        value_names = ("--spec-draft-type-v", "--cache-type-v-draft", "-ctvd")
        give_if_set("the type of the draft's cached keys", draft.cache_type_k, *key_names)
        give_if_set("the type of the draft's cached values", draft.cache_type_v, *value_names)
        spec_type, refusal = _spec_type(help_, draft.spec_type)
        line += [SPEC_TYPE, spec_type] if spec_type else []
        refusals += [refusal] if refusal else []

    refusals += _check_extra(help_, settings.extra)
    if refusals:
        raise Refused(*refusals)
    return [*line, *settings.extra]


def _spec_type(help_: Help, wanted: str) -> tuple[str | None, Refusal | None]:
    """(the value of --spec-type or None where it must not be given, why it cannot be expressed)."""
    choices = help_[SPEC_TYPE].choices if help_.has(SPEC_TYPE) else frozenset()
    for_drafts = next((name for name in _DRAFT_MODEL_SPEC_TYPES if name in choices), None)
    if wanted == "draft-simple" and for_drafts:
        return for_drafts, None
    # Before a draft model had a type of its own it was used as soon as it was there: nothing to give, nothing to stop.
    if wanted == "draft-simple" and (choices or not help_.has(SPEC_TYPE)):
        return None, None
    if wanted in choices and for_drafts:
        return wanted, None
    return None, _refusal(
        "flags.spec_type", SPEC_TYPE, wanted, sorted(choices), "this llama-server cannot be told this type"
    )


def _check_extra(help_: Help, extra: tuple[str, ...]) -> list[Refusal]:
    owned = frozenset(_OWNED.split())
    refusals = []
    for token in extra:
        name = token.partition("=")[0]
        if not re.match(r"-{1,2}[A-Za-z]", name):
            continue
        if owned & set(help_.aliases(name)):
            refusals.append(_refusal("flags.owned", name, token, None, "the mill sets this flag itself; leave it out"))
        elif any(alias.startswith(_FAKE_ACCEPTANCE) for alias in help_.aliases(name)):
            refusals.append(_refusal("flags.synthetic", name, token, None, "it fakes acceptance; leave it out"))
        elif not help_.has(name):
            refusals.append(_refusal("flags.unknown", name, token, None, "this llama-server does not take it"))
    return refusals


def _refusal(code: str, where: str, measured: Any, expected: Any, sentence: str) -> Refusal:
    return Refusal(code, where, measured, expected, sentence)
