"""The container's part of the gate: found, bounded, read once; its header, the bytes between tensors, its scalars."""

import os
from dataclasses import dataclass, field

from draftmill.dflash import names
from draftmill.dflash.config import Survey
from draftmill.dflash.gate_files import Opened, PackageFiles
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_packed import PackedStatistics
from draftmill.dflash.gate_plain import Kept, PlainStatistics, Zeros
from draftmill.dflash.gate_reading import PIECE, CutShort, Span, read_through
from draftmill.dflash.gate_table import home_of
from draftmill.dflash.inventory import Role, Variant
from draftmill.dflash.scalars import KEYS, check_scalar, scalar_values
from draftmill.dflash.storage import Inventory, Located
from draftmill.dflash.weight_file import find_container
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress
from draftmill.q4nx.encodings import CHUNK_BYTES, Kind
from draftmill.q4nx.header import Header, read_header
from draftmill.q4nx.tiles import ROWS, Workspace

LARGEST_PADDING = 4096
"""Bytes between tensors: 64 is the widest alignment of a known writer, a page the widest that is taken for one."""
MOST_UNCLAIMED = 256 << 20
"""Bytes beside the tensors from which on the container is refused by its header alone: reading them could take hours
and would change nothing. Padding of every tensor to a page stays far below."""


@dataclass
class Measured:
    """What is gathered of each tensor in the pass, by the mill's name."""

    packed: dict[str, tuple[Located, PackedStatistics]] = field(default_factory=dict)
    plain: dict[str, tuple[Located, PlainStatistics]] = field(default_factory=dict)
    scalars: dict[str, tuple[Located, Kept]] = field(default_factory=dict)

    def spans(self) -> list[Span]:
        found = []
        for located, packed in self.packed.values():
            assert located.encoding is not None  # noqa: S101 - that is what makes it a packed one
            found.append((located.entry, CHUNK_BYTES[located.encoding.kind], packed.take))
        for located, plain in self.plain.values():
            found.append((located.entry, plain.width, plain.take))
        for located, kept in self.scalars.values():
            if kept.size:
                found.append((located.entry, 1, kept.take))
        return [Span(entry.begin, entry.end, unit, take) for entry, unit, take in found]


def prepare(inventory: Inventory) -> Measured:
    """An empty measure for every tensor."""
    measured, work = Measured(), Workspace()
    for name, located in inventory.by_name.items():
        entry, role, encoding = located.entry, located.expected.role, located.encoding
        if role == Role.SCALAR:
            # A large one is refused by its shape.
            measured.scalars[name] = (located, Kept(entry.nbytes if entry.nbytes <= PIECE else 0))
        elif encoding and encoding.packed:
            measured.packed[name] = (located, PackedStatistics(encoding, work))
        else:
            count = entry.nbytes // (4 if entry.dtype == "F32" else 2)
            keep = count if role == Role.NORM else 0
            matrix = None
            if encoding and encoding.kind == Kind.BLOCK_BF16:
                matrix = encoding.rows, encoding.columns
            line = ROWS if matrix else located.expected.shape[-1] if encoding else 0
            measured.plain[name] = (located, PlainStatistics(entry.dtype, count, keep, line, matrix))
    return measured


def open_container(files: PackageFiles, stated: str | None, ledger: Ledger) -> Opened | None:
    """The open container, None when it is refused or cannot be read."""
    try:
        path = find_container(files.folder, stated)
    except Refused as refused:
        for refusal in refused.refusals:
            # The stated path was looked at with the config: here it can only be a link.
            link = refusal.code == "dflash.weight_path"
            ledger.refuse("files.links" if link else home_of(refusal.code, None, "container.found"), refusal)
        return None
    except OSError as error:
        files.unreadable(files.folder.name, error)
        return None
    name = path.relative_to(files.folder).as_posix()
    ledger.passes("container.found", name, name)
    container = files.open(name)
    if container is None:
        return None
    hole = files.first_hole(container)
    if hole is not None and files.worth_reading(container):
        files.refuse_hole(name, hole)
    ledger.passes("files.whole", container.size, f"{container.size:,} bytes without a hole")
    return container


def read_container_header(files: PackageFiles, container: Opened, ledger: Ledger) -> Header | None:
    """None when the header is refused or cannot be read."""
    try:
        header = read_header(
            lambda offset, count: os.pread(container.descriptor, count, offset), container.size, container.name
        )
    except Refused as refused:
        ledger.refuse("container.header", *refused.refusals)
        return None
    except OSError as error:
        files.unreadable(container.name, error)
        return None
    count = len(header.tensors)
    ledger.passes("container.header", count, f"{count} tensors inside {container.size:,} bytes, none overlapping")
    return header


def read_bytes(
    files: PackageFiles,
    container: Opened,
    header: Header | None,
    measured: Measured,
    ledger: Ledger,
    progress: Progress,
) -> bool:
    """The pass over the container. False when it was not read to its end: then nothing was measured."""
    holes = list(header.gaps) if header else []
    if header and header.trailing:
        holes.append((container.size - header.trailing, container.size))
    if sum(end - begin for begin, end in holes) > MOST_UNCLAIMED:
        container.unread = True
        for begin, end in holes:
            if end - begin >= LARGEST_PADDING:
                ledger.refuse("container.unclaimed", _unclaimed(container.name, begin, end, f"{end - begin} bytes"))
    if not files.worth_reading(container):
        return False
    zeros = [Zeros(begin) for begin, _ in holes]
    spans = measured.spans() + [Span(*hole, 1, zero.take) for hole, zero in zip(holes, zeros, strict=True)]
    try:
        container.sha256 = read_through(container.descriptor, container.size, spans, container.name, progress)
    except CutShort:
        return False  # `settle` tells how far it was cut
    except OSError as error:
        files.unreadable(container.name, error)
        return False
    files.bytes_read += container.size
    if header:
        _check_unclaimed(container.name, holes, zeros, ledger)
    return True


def _check_unclaimed(where: str, holes: list[tuple[int, int]], zeros: list[Zeros], ledger: Ledger) -> None:
    for (begin, end), zero in zip(holes, zeros, strict=True):
        if zero.first is None and end - begin < LARGEST_PADDING:
            continue
        what = f"{end - begin} bytes of zeros" if zero.first is None else f"a byte other than zero at {zero.first}"
        ledger.refuse("container.unclaimed", _unclaimed(where, begin, end, what))
    count = sum(end - begin for begin, end in holes)
    said = f"{count} bytes of padding in {len(holes)} places" if holes else "tensors lie without a gap"
    ledger.passes("container.unclaimed", count, said)


def _unclaimed(where: str, begin: int, end: int, what: str) -> Refusal:
    return Refusal(
        "gate.unclaimed_bytes",
        f"{where}:{begin}..{end}",
        what,
        f"zeros, fewer than {LARGEST_PADDING}",
        "No tensor claims these bytes and they are no padding, so the file holds something that nothing reads. "
        "Download it again, or pack the draft again.",
    )


def check_scalars(config: Survey, measured: Measured, where: str, ledger: Ledger) -> None:
    """Each scalar on its own. A container of generation 2 may have none."""
    known = scalar_values(config)
    for name in names.SCALARS:
        if name not in measured.scalars:
            if config.generation == 2 and not measured.scalars:
                ledger.skip(f"scalars.{name}", "the container repeats nothing of the config")
            continue
        if name not in known:
            ledger.stop(f"scalars.{name}", config.doubts.get(KEYS[name], f"{KEYS[name]} is in doubt"))
            continue
        located, kept = measured.scalars[name]
        refusal = check_scalar(name, located.entry, kept.data, config, where)
        if refusal:
            ledger.refuse(f"scalars.{name}", refusal)
        entry = located.entry
        stated = f"{entry.dtype} {list(entry.shape)} as in the config"
        ledger.passes(f"scalars.{name}", entry.dtype, stated, f"{where}:{entry.name}")


def variants_of(header: Header, inventory: Inventory) -> tuple[Variant, ...]:
    """Which of the documented liberties and spellings were met."""
    found = list(inventory.variants)
    scalars = {each.entry.dtype for each in inventory.by_name.values() if each.expected.role == Role.SCALAR}
    shapes = {str(list(each.entry.shape)) for each in inventory.by_name.values() if each.expected.role == Role.SCALAR}
    if scalars:
        found.append(
            Variant("scalar labels and shapes", f"{', '.join(sorted(scalars))}; {', '.join(sorted(shapes))}", 1)
        )
    liberties = {
        "gaps between tensors": len(header.gaps),
        "bytes behind the last tensor": header.trailing,
        "metadata keys": len(header.metadata or {}),
        "entries without offsets": len(header.skipped),
    }
    return (*found, *(Variant("header", what, count) for what, count in liberties.items() if count))
