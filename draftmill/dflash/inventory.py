"""The exact set of tensors that a draft of a config has, and how the names in a file answer to it.

Five layers: 35 projections + 22 norms + fc = 58; a generation 1 container adds six scalars, 64; generation 2 adds four
tensors a layer and three of the selector, 81. Sources: dflash.md sections 2 and 5.2, q4nx.md sections 6.2 and 7.2.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from draftmill.dflash import names
from draftmill.dflash.config import DraftConfig
from draftmill.dflash.geometry import Geometry
from draftmill.outcome import Refusal


class Role(StrEnum):
    PROJECTION = "projection"
    NORM = "norm"
    FUSION = "fusion matrix"
    CONV_PROJECTION = "convolution projection"
    CONV_KERNEL = "convolution base kernel"
    SELECTOR = "selector projection"
    CODEBOOK = "selector codebook"
    SCALAR = "scalar"


@dataclass(frozen=True)
class Expected:
    """name: the mill's; shape: logical, rows (outputs) first, of a scalar the number of its values."""

    name: str
    role: Role
    shape: tuple[int, ...]

    @property
    def sized(self) -> bool:
        """Whether the config gives it a size (`Geometry`)."""
        return 0 not in self.shape


@dataclass(frozen=True)
class Variant:
    """One of several documented spellings or forms, and how many tensors have it."""

    what: str
    met: str
    count: int


@dataclass(frozen=True)
class Matched:
    """found: the mill's name -> the file's. twice: further names in the file for one tensor. odd: for each choice that
    a file makes once (`names.choices`) and this one makes twice, (what it has most, the names that differ)."""

    found: dict[str, str]
    missing: tuple[Expected, ...]
    unexplained: tuple[str, ...]
    twice: dict[str, tuple[str, ...]]
    variants: tuple[Variant, ...]
    odd: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def refusals(self, where: str, generation: int) -> list[Refusal]:
        """Every difference. Codes: dflash.tensor_missing, tensor_unexplained, tensor_twice, names_mixed."""
        missing = [
            Refusal(
                "dflash.tensor_missing",
                f"{where}:{each.name}",
                "absent",
                list(each.shape) if each.sized else "a tensor of a size that the config does not give",
                f"The {each.role} is not in the file under any known name; the draft cannot run without it. "
                "Download the file again, or give the config that belongs to it.",
            )
            for each in self.missing
        ]
        twice = [
            Refusal(
                "dflash.tensor_twice",
                f"{where}:{name}",
                [self.found[name], *others],
                "one tensor",
                "The same tensor stands here under several names, and readers differ in which they take; keep one.",
            )
            for name, others in self.twice.items()
        ]
        mixed = [
            Refusal(
                "dflash.names_mixed",
                f"{where}:{odd[0]}",
                list(odd[:MOST_NAMED]),
                most,
                f"Names are spelled in two ways, {len(odd)} unlike the rest, and a writer has one: two files were "
                "mixed, or some tensors were renamed. Download the file again.",
            )
            for most, odd in self.odd
        ]
        return missing + [_unexplained(name, where, generation) for name in self.unexplained] + twice + mixed


def expected_tensors(config: DraftConfig | Geometry, *, scalars: bool) -> tuple[Expected, ...]:
    """Every tensor of a draft, in order of layers; scalars: also the six that a container repeats of its config."""
    hidden, ffn, head = config.hidden_size, config.intermediate_size, config.head_dim
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    sizes = ((queries, hidden), (keys, hidden), (keys, hidden), (hidden, queries))
    projections = dict(zip(names.ATTENTION_PROJECTIONS, sizes, strict=True))
    projections |= dict(zip(names.MLP_PROJECTIONS, ((ffn, hidden), (ffn, hidden), (hidden, ffn)), strict=True))
    norms = dict.fromkeys(names.LAYER_NORMS, hidden) | dict.fromkeys(names.HEAD_NORMS, head)
    found = [
        Expected(names.FUSION, Role.FUSION, (hidden, config.taps * hidden)),
        Expected(names.HIDDEN_NORM, Role.NORM, (hidden,)),
        Expected(names.FINAL_NORM, Role.NORM, (hidden,)),
    ]
    for i in range(config.num_hidden_layers):
        found += [
            Expected(names.layer(i, f"{part}.weight"), Role.PROJECTION, shape) for part, shape in projections.items()
        ]
        found += [Expected(names.layer(i, f"{part}.weight"), Role.NORM, (size,)) for part, size in norms.items()]
        found += _convolutions(config, i)
    return (*found, *_selector(config), *(_scalars(config) if scalars else ()))


def _convolutions(config: DraftConfig | Geometry, i: int) -> list[Expected]:
    if config.second is None:
        return []
    taps, group, hidden = config.second.conv_kernel_size, config.second.conv_group_size, config.hidden_size
    rows = 2 * taps * (hidden // group if group else 0)
    return [
        each
        for part in names.CONVOLUTIONS
        for each in (
            Expected(names.layer(i, f"{part}.base_kernel"), Role.CONV_KERNEL, (2, taps, hidden)),
            Expected(names.layer(i, f"{part}.kernel_projection.weight"), Role.CONV_PROJECTION, (rows, hidden)),
        )
    ]


def _selector(config: DraftConfig | Geometry) -> list[Expected]:
    if config.second is None:
        return []
    rank = config.second.selector_rank
    return [
        Expected(names.SELECTOR, Role.SELECTOR, (rank, config.hidden_size)),
        Expected(names.PREDECESSOR, Role.CODEBOOK, (config.vocab_size, rank)),
        Expected(names.SUCCESSOR, Role.CODEBOOK, (config.vocab_size, rank)),
    ]


def _scalars(config: DraftConfig | Geometry) -> list[Expected]:
    counts = {name: config.taps if name == "target_layer_ids" else 1 for name in names.SCALARS}
    return [Expected(name, Role.SCALAR, (count,)) for name, count in counts.items()]


def match(config: DraftConfig | Geometry, present: Iterable[str], *, container: bool) -> Matched:
    """The names in a file against the draft's. container: a Q4NX container, which has scalars; an upstream checkpoint
    has none. Whether a generation 2 container has them is not established: all six or none are accepted."""
    present = list(dict.fromkeys(present))
    wanted = {each.name: each for each in expected_tensors(config, scalars=container)}
    spelled = {
        spelling: (name, prefix, alias)
        for name in wanted
        for spelling, (prefix, alias) in names.spellings(name).items()
    }
    found: dict[str, str] = {}
    twice: dict[str, tuple[str, ...]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for name in (name for name in present if name in spelled):
        own, prefix, alias = spelled[name]
        if own in found:
            twice[own] = (*twice.get(own, ()), name)
            continue
        found[own] = name
        seen["scalar prefix" if wanted[own].role == Role.SCALAR else "tensor prefix", prefix] += 1
        if alias:
            seen["alias", alias] += 1
    chosen: dict[str, dict[str, list[str]]] = {}
    for own, name in found.items():
        if own not in twice:  # which of its names counts is open then
            for choice, made in names.choices(own, *spelled[name][1:]).items():
                chosen.setdefault(choice, {}).setdefault(made, []).append(name)
    optional = config.generation == 2 and not any(name in found for name in names.SCALARS)
    return Matched(
        found=found,
        missing=tuple(
            each for name, each in wanted.items() if name not in found and not (optional and each.role == Role.SCALAR)
        ),
        unexplained=tuple(name for name in present if name not in spelled),
        twice=twice,
        variants=tuple(Variant(what, met, count) for (what, met), count in sorted(seen.items())),
        odd=tuple(_odd(choice, made) for choice, made in chosen.items() if len(made) > 1),
    )


def _odd(choice: str, made: dict[str, list[str]]) -> tuple[str, tuple[str, ...]]:
    most = max(made, key=lambda each: len(made[each]))
    rest = tuple(name for each, spelled in made.items() if each != most for name in spelled)
    return f"{choice}: {most or 'none'}, as {len(made[most])} names have it", rest


MOST_NAMED = 20
_SECOND_ONLY = ("attention_conv.", "mlp_conv.", "candidate_selector.")


def _unexplained(name: str, where: str, generation: int) -> Refusal:
    if what := names.extension(name):
        sentence = (
            f"The tensor is {what}, an extension that DFlash does not have; without it the draft is another one. "
            "Take a draft that has none."
        )
    elif generation == 1 and any(part in name for part in _SECOND_ONLY):
        sentence = (
            "The tensor belongs to generation 2, and the config says DFlashDraftModel; config or file is another's. "
            "Download both again."
        )
    else:
        sentence = (
            "No tensor of this draft has such a name; what it does is unknown, so the file is not what it says. "
            "Download it again, or ask its publisher."
        )
    return Refusal("dflash.tensor_unexplained", f"{where}:{name[:200]}", name[:200], "absent", sentence)
