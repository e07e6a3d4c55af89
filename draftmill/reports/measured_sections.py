"""What every report of a measurement says besides its figures: the pair, the regime, what ran where, how to run it."""

import shlex

from draftmill.measurement.record import Accepted, File, Measured, Memory, Ran, Speed
from draftmill.reports.command_line import command_line
from draftmill.reports.document import Block, Facts, Folded, Items, Section, Table, Text, Verbatim
from draftmill.reports.notation import said, size
from draftmill.speculation.regime import Regime

_REGIME_SAID = {
    "n_max": "n_max, drafts offered a round at most",
    "n_min": "n_min, rounds with fewer drafts are not verified",
    "p_min": "p_min, probability below which drafting stops",
    "fallback": "fallback, acceptance below which it decodes plainly",
    "block": "block, rows of a verify pass",
    "budget": "budget, new tokens a request",
    "target_kv": "target KV types",
    "drafter_kv": "drafter KV types",
    "kernel": "kernel variant",
}


def remarks(record: Measured) -> Section | None:
    return Section("Remarks", (Items(record.remarks),)) if record.remarks else None


def pair(record: Measured) -> Section:
    """The two files, and what the check of the pair found."""
    found: tuple[Block, ...] = (_files(record),)
    if record.pairing:
        found += (Text("The check of the pair remarks:"), Items(record.pairing))
    return Section("Pair", found)


def _files(record: Measured) -> Table:
    def column(file: File) -> tuple[str, ...]:
        return (
            Verbatim(file.name),
            Verbatim(file.sha256),
            size(file.size),
            Verbatim(file.architecture),
            file.label or "not stated",
        )

    names = ("file", "SHA-256", "size", "architecture", "general.name")
    rows = tuple(zip(names, column(record.target), column(record.draft), strict=True))
    return Table("Target and draft", ("", "target", "draft"), rows)


def regime(record: Measured) -> Section:
    """All members, and the digest by which two figures are known to be of one regime."""
    members = record.regime.model_dump()
    facts: list[tuple[str, str]] = [("digest", Verbatim(record.regime.digest))]
    facts += [
        (
            _REGIME_SAID.get(name, name.replace("_", " ")),
            Verbatim(members[name]) if name in ("drafter", "target", "prompts") else said(members[name]),
        )
        for name in Regime.model_fields
    ]
    note = "Figures of another regime are other quantities: they do not compare with these."
    return Section("Regime", (Text(note), Facts(tuple(facts))))


def setting(record: Measured) -> Section:
    """Device, machine, how it was measured, and each server as its live process showed it."""
    machine, setup = record.machine, record.setup
    facts = [
        ("device", setup.device),
        ("CPU", machine.cpu),
        ("cores this process may use", str(machine.cores)),
        ("memory", size(machine.memory)),
        ("system", machine.system),
        ("chat template", said(setup.chat)),
        ("context", f"{setup.context} tokens"),
    ]
    if isinstance(record, Speed):
        taking_turns = f"one server at a time, restarted every {setup.block} pairs"
        facts += [
            ("servers", "both up at once" if setup.together else taking_turns),
            ("discarded after every start", f"{setup.warm_up} requests of each arm"),
            ("near-tie", f"gaps below {setup.near_tie:g} nats"),
        ]
    blocks: list[Block] = [Facts(tuple(facts))]
    for arms, what in _alike(record.ran):
        blocks += [Text(f"{arms}, read from the live process:"), _ran(what), *_evidence(arms, what)]
    return Section("Device, and what ran", tuple(blocks))


def _alike(ran: dict[str, Ran]) -> list[tuple[str, Ran]]:
    """Arms that ran the same are told once; their command lines differ always, and are told elsewhere."""
    groups: list[tuple[list[str], Ran]] = []
    for arm, what in ran.items():
        for arms, known in groups:
            if known.model_copy(update={"arguments": what.arguments}) == what:
                arms.append(arm)
                break
        else:
            groups.append(([arm], what))
    return [(" and ".join(arms), what) for arms, what in groups]


def _ran(what: Ran) -> Facts:
    return Facts(
        (
            ("provider", what.provider),
            ("engine", Verbatim(what.executable)),
            ("SHA-256", Verbatim(what.digest)),
            ("build", what.build),
            ("kernel variant", what.variant or "not stated by the engine"),
            ("devices", ", ".join(what.devices) or "none named"),
            ("device files open", ", ".join(what.nodes) or "none"),
        )
    )


def _evidence(arm: str, what: Ran) -> list[Block]:
    libraries = Table(
        "Libraries",
        ("mapped code", "SHA-256"),
        tuple(
            (Verbatim(library.path), Verbatim(library.sha256) if library.sha256 else "changed since, or not readable")
            for library in what.libraries
        ),
    )
    variables = tuple((name, Verbatim(value)) for name, value in what.environment.items())
    found: list[Block] = [Folded(f"{arm}, mapped libraries: {len(what.libraries)}", (libraries,))]
    if variables:
        found.append(Folded(f"{arm}, variables that choose devices and kernels: {len(variables)}", (Facts(variables),)))
    return found


def memory(memory: Memory) -> Section:
    """Counters before and after; a rise that stayed is said first."""
    names = dict.fromkeys((*memory.before, *memory.after))

    def told(values: dict[str, int], name: str) -> str:
        return size(values[name]) if name in values else "not read"

    rows = tuple(
        (
            name,
            told(memory.before, name),
            told(memory.after, name),
            size(memory.after[name] - memory.before[name]) if name in memory.before and name in memory.after else "",
        )
        for name in names
    )
    table = Table("Memory", ("counter", "before any server", "after the last", "change"), rows, frozenset({1, 2, 3}))
    lead: Block = Items(memory.remarks) if memory.remarks else Text("No rise that stayed.")
    return Section("Memory", (lead, table) if rows else (Text("No counter was read."),))


def prompts(record: Measured) -> Section:
    kinds = list(dict.fromkeys(prompt.kind for prompt in record.prompts))
    rows = tuple((Verbatim(prompt.name), prompt.kind, str(prompt.tokens)) for prompt in record.prompts)
    table = Table("Prompts", ("prompt", "kind", "tokens"), rows, frozenset({2}))
    summary = f"Prompts: {len(rows)}, kinds: {', '.join(kinds)}"
    return Section("Prompts", (Folded(summary, (table,)),))


def reproduce(record: Speed | Accepted) -> Section:
    facts = [("draftmill", Verbatim(shlex.join(command_line(record))))]
    facts += [(arm, Verbatim(shlex.join(each.arguments))) for arm, each in record.ran.items()]
    note = (
        "The command, and the command line of each server as its process showed it. Compare files by SHA-256, prompts "
        "by their digest in the regime, and figures by ratios only: tokens per second of two runs do not compare. The "
        "prompts are not in the command: give those named under Prompts by --prompts, --kind or --quick."
    )
    return Section("How to reproduce", (Text(note), Facts(tuple(facts))))
