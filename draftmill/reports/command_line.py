"""The command that measures the same again, from what a record states."""

import os

from draftmill.measurement.record import ALONE, Accepted, LoopOptions, Speed

_OWN_ENGINE = "xllamacpp"
_CPU = "cpu"


def command_line(record: Speed | Accepted) -> tuple[str, ...]:
    """Every option that changes a figure, given explicitly, but --prompts: texts are known by their digest only.

    A device is named; what its profile brings has to be there.
    """
    regime, setup = record.regime, record.setup
    if isinstance(record, Accepted) and record.loop is not None:
        return _of_loop(record, record.loop)
    speed = isinstance(record, Speed)
    options: list[tuple[str, object]] = [
        ("--target", record.target.name),
        ("--draft", record.draft.name),
        ("--device", setup.device),
        *_engine(record),
        ("--form", "chat" if setup.chat else "raw"),
        ("--budget", regime.budget),
        ("--n-max", regime.n_max),
        ("--n-min", regime.n_min),
        ("--p-min", regime.p_min),
        ("--threads", regime.threads),
        ("--context", setup.context),
        ("--seed", regime.seed),
    ]
    if isinstance(record, Speed):
        pairs = {sample.pair for sample in record.samples if sample.pair is not None and sample.arm == ALONE}
        options += [
            ("--spec-type", regime.spec_type),
            ("--pairs", len(pairs) or None),
            ("--warm-up", setup.warm_up),
            ("--servers", "both" if setup.together else "one"),
        ]
    else:
        options.append(("--route", regime.route))
    given = [part for name, value in options if value is not None for part in (name, str(value))]
    return ("draftmill", "measure", "speed" if speed else "acceptance", *given)


def _of_loop(record: Accepted, loop: LoopOptions) -> tuple[str, ...]:
    regime, setup = record.regime, record.setup
    options: list[tuple[str, object]] = [
        ("--target", record.target.name),
        ("--drafter", record.draft.name),
        ("--device", setup.device),
        ("--form", "chat" if setup.chat else "raw"),
        ("--max-new", regime.budget),
        ("--threads", regime.threads),
        ("--dtype", loop.dtype),
        ("--torch-device", loop.torch_device),
        ("--weights", "packed" if loop.packed else "decoded"),
        ("--window", loop.window_rule.value),
        ("--fallback", loop.fallback),
    ]
    given = [part for name, value in options if value is not None for part in (name, str(value))]
    if loop.causal is not None:
        given.append("--causal" if loop.causal else "--non-causal")
    return ("draftmill", "measure", "acceptance", *given)


def _engine(record: Speed | Accepted) -> list[tuple[str, object]]:
    """A llama-server of the user's own; that of another device comes with its profile."""
    what = next(iter(record.ran.values()), None)
    if what is None or what.provider == _OWN_ENGINE or record.setup.device != _CPU:
        return []
    folders = what.environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [("--engine", what.executable), *(("--library-path", folder) for folder in folders if folder)]
