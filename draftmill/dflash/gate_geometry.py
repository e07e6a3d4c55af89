"""Which tensors the container holds for the config, and where the two disagree: names, labels, encodings, sizes."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from draftmill.dflash import names
from draftmill.dflash.config import Survey
from draftmill.dflash.config_keys import SECOND, SIZES
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_table import OF_CONTAINER, SHAPES, checks_of, home_of
from draftmill.dflash.geometry import Geometry
from draftmill.dflash.inventory import Matched, Role, expected_tensors, match
from draftmill.dflash.storage import Inventory, locate
from draftmill.intake.findings import Findings
from draftmill.outcome import Refusal
from draftmill.q4nx.header import Entry
from draftmill.q4nx.tiles import COLUMNS, ROWS

_SIZES = (*(key.name for key in (*SIZES, *SECOND)), "target_layer_ids")
_HEAD = ("hidden_size", "num_attention_heads", "head_dim")
_ATTENTION = tuple(part.rpartition(".")[2] for part in (*names.ATTENTION_PROJECTIONS, *names.HEAD_NORMS))


def check_tensors(survey: Survey, entries: Mapping[str, Entry], where: str, ledger: Ledger) -> Inventory | None:
    """The tensors whose place and form are as the config has them; everything else goes into the ledger. None where
    the config does not say which tensors there are."""
    config = survey.geometry
    if config is None:
        names_tensors = ("architectures", "num_hidden_layers")
        why = " and ".join(survey.doubts[key] for key in names_tensors if key in survey.doubts)
        ledger.stop_unsaid((check for check in OF_CONTAINER if not check.startswith("container.")), why)
        return None
    matched = match(config, entries, container=True)
    for refusal in matched.refusals(where, config.generation):
        ledger.refuse(home_of(refusal.code, None, "tensors.explained"), refusal)
    count, wanted = len(matched.found), len(matched.found) + len(matched.missing)
    ledger.passes("tensors.present", count, f"{count} of {wanted} tensors are there")
    ledger.passes("tensors.explained", len(entries), f"each of {len(entries)} tensors is a draft's")
    ledger.passes("tensors.single", count, "one name for each tensor")
    spelled = [f"{each.what} {each.met or 'none'}" for each in matched.variants]
    ledger.passes("tensors.names", spelled, f"one way of naming: {', '.join(spelled) or 'no name'}")

    if doubts := [survey.doubts[key] for key in _HEAD if key in survey.doubts]:
        ledger.stop("tensors.head_dim", " and ".join(doubts))
    findings = Findings()
    inventory = locate(config, matched, entries, where, findings)
    inventory, findings = _by_stored_head(config, matched, entries, where, ledger, inventory, findings)
    roles = {
        matched.found[each.name]: each.role
        for each in expected_tensors(config, scalars=True)
        if each.name in matched.found
    }
    for refusal in findings.refusals:
        role = roles.get(refusal.where.removeprefix(f"{where}:"))
        ledger.refuse(home_of(refusal.code, role, "tensors.encodings"), refusal)
    _stop_what_was_left_out(survey, config, matched, inventory, ledger)
    _say(inventory, ledger)
    return inventory


def _stop_what_was_left_out(
    survey: Survey, config: Geometry, matched: Matched, inventory: Inventory, ledger: Ledger
) -> None:
    """What a check was not shown it does not pass."""
    for each in expected_tensors(config, scalars=True):
        if each.role == Role.SCALAR:
            if each in matched.missing:
                ledger.stop(f"scalars.{each.name}", "the scalar is not there")
            continue
        if each.name in inventory.by_name:
            continue
        if each.sized:
            why = f"{matched.found.get(each.name, each.name)} is not there in the form that it has to have"
            stopped = checks_of(each.role, config.generation)
        else:
            sizes = [survey.doubts[key] for key in _SIZES if key in survey.doubts]
            why = f"it takes the size of {each.name}, and {' and '.join(sizes) or 'the sizes do not fit each other'}"
            stopped = (*checks_of(each.role, config.generation), "tensors.labels", "tensors.encodings")
        for check in stopped:
            ledger.stop(check, why)


def _by_stored_head(
    config: Geometry,
    matched: Matched,
    entries: Mapping[str, Entry],
    where: str,
    ledger: Ledger,
    inventory: Inventory,
    findings: Findings,
) -> tuple[Inventory, Findings]:
    """One wrong head_dim makes every tensor of attention look wrong. When another one explains them all, that is the
    finding, and the rest is looked at with the stored one."""
    stored = _stored_heads(config, matched, entries)
    tiles = f"q_proj's tiles give {sorted(stored)}"
    if config.head_dim and findings and len(stored) == 1 and stored != {config.head_dim}:
        (head,) = stored
        again = Findings()
        other = locate(replace(config, head_dim=head), matched, entries, where, again)
        if not any(_of_attention(refusal) for refusal in again.refusals):
            ledger.refuse(
                "tensors.head_dim",
                Refusal(
                    "gate.head_dim",
                    f"{where}:self_attn",
                    head,
                    config.head_dim,
                    f"The stored tiles and norms of attention are those of heads of {head}, and the config says "
                    f"{config.head_dim}; config or container is another draft's. Download the package again.",
                ),
            )
            return other, again
    if not stored:
        ledger.stop("tensors.head_dim", "no q_proj tells how wide a head is")
    else:
        ledger.passes("tensors.head_dim", sorted(stored), f"{tiles}, the config says {config.head_dim}")
    return inventory, findings


def _of_attention(refusal: Refusal) -> bool:
    return any(f"{part}." in refusal.where for part in _ATTENTION)


def _stored_heads(config: Geometry, matched: Matched, entries: Mapping[str, Entry]) -> set[int]:
    """The head_dim that each layer's q_proj has room for, by its number of tiles."""
    across = -(-config.hidden_size // COLUMNS)
    if not (across and config.num_attention_heads):
        return set()
    found = set()
    for i in range(config.num_hidden_layers):
        if name := matched.found.get(names.layer(i, f"{names.ATTENTION_PROJECTIONS[0]}.weight")):
            shape = entries[name].shape
            plain = entries[name].dtype == "BF16" and len(shape) == 3  # [N / 32, K, 32]
            rows = shape[0] * ROWS if plain else prod(shape[:-1]) / across * ROWS
            heads = rows / config.num_attention_heads
            found.add(int(heads) if heads.is_integer() and heads > 0 else -1)
    return found - {-1} if found != {-1} else set()


def _say(inventory: Inventory, ledger: Ledger) -> None:
    located = list(inventory.by_name.values())
    labels = sorted({f"{each.expected.role}: {each.entry.dtype}" for each in located})
    ledger.passes("tensors.labels", labels, "; ".join(labels) or "none")
    packed = [each for each in located if each.encoding and each.encoding.packed]
    kinds = sorted({each.encoding.kind.value for each in packed if each.encoding})
    ledger.passes("tensors.encodings", kinds, f"{len(packed)} packed tensors, {', '.join(kinds) or 'none'}")
    ledger.passes("tensors.uniform", kinds, f"one encoding for {len(packed)} packed tensors")
    by_role: dict[str, list[str]] = {}
    for each in located:
        if each.expected.role in SHAPES:
            by_role.setdefault(SHAPES[each.expected.role], []).append(each.expected.name)
    for check in dict.fromkeys(SHAPES.values()):
        found = by_role.get(check, [])
        if found:
            ledger.passes(check, len(found), f"{len(found)} tensors have the size that the config gives them")
    padded = [each for each in packed if each.encoding and each.encoding.padded_columns]
    if any(each.expected.role == Role.PROJECTION for each in packed):
        tiles = sum(each.encoding.tile_rows * each.encoding.tile_columns for each in packed if each.encoding)
        more = f"; {len(padded)} are padded to whole tiles" if padded else ""
        count = len(by_role.get("tensors.tiles", []))
        ledger.passes("tensors.tiles", tiles, f"{count} projections, {tiles:,} tiles in all packed tensors{more}")
    elif plain := by_role.get("tensors.tiles", []):
        said = f"{len(plain)} projections are BF16 block matrices, as no published draft has them"
        ledger.passes("tensors.tiles", len(plain), said)
