"""The gate: is a FastFlowLM draft package what it says it is? Every check runs that can, and all that fails is said.

Fails closed: what was not checked is never a pass. The container is read once; digests and statistics ride on the same
bytes. Nothing is written, and nothing outside the package is read. Checks and their names: `gate_table`.
"""

from collections.abc import Collection
from pathlib import Path

from draftmill.dflash.config import Survey
from draftmill.dflash.gate_config import check_config, facts_of, remarks_on
from draftmill.dflash.gate_container import (
    Measured,
    check_scalars,
    open_container,
    prepare,
    read_bytes,
    read_container_header,
    variants_of,
)
from draftmill.dflash.gate_files import Opened, PackageFiles, is_folder
from draftmill.dflash.gate_geometry import check_tensors
from draftmill.dflash.gate_ledger import Ledger
from draftmill.dflash.gate_manifest import check_manifests, read_manifests, remarks_on_manifests
from draftmill.dflash.gate_packed import packed_figures
from draftmill.dflash.gate_plain import plain_figures
from draftmill.dflash.gate_plain_values import check_plain
from draftmill.dflash.gate_result import Gate, TensorReport
from draftmill.dflash.gate_table import CHECKS, OF_CONTAINER, OF_TILES
from draftmill.dflash.gate_values import check_packed
from draftmill.dflash.gate_weights import check_weights
from draftmill.dflash.inventory import Role, Variant
from draftmill.dflash.storage import Inventory
from draftmill.outcome import BadConfiguration
from draftmill.progress import Progress, silent


def gate(folder: Path, progress: Progress = silent, *, left_aside: Collection[str] = ()) -> Gate:
    """Gates the package in a folder. Progress counts the container's bytes. left_aside: files that the package has at
    its source and that were not downloaded, so that a manifest may list them.

    Raises BadConfiguration gate.folder when there is no such folder; whatever is wrong with the package is in the
    result.
    """
    if not is_folder(folder):
        raise BadConfiguration(
            f"{folder} is not a folder; give the package's folder, with config.json in it.", code="gate.folder"
        )
    ledger = Ledger()
    files = PackageFiles(folder, ledger)
    try:
        config = check_config(files, ledger)
        manifests = read_manifests(files, ledger)
        container = open_container(files, config.weight_file if config else None, ledger)
        variants: tuple[Variant, ...] = ()
        tensors: tuple[TensorReport, ...] = ()
        if container:
            listed = any(container.name in manifest.digests for manifest in manifests)
            variants, tensors = _gate_container(files, container, config, listed, ledger, progress)
        else:
            ledger.stop_unsaid((*OF_CONTAINER, "files.whole"), "no container could be opened")
        check_manifests(files, manifests, container, left_aside, ledger)
        files.settle()
        if config:
            _skip_foreign(config, ledger)
        return Gate(
            ledger.checks(),
            files.as_records(),
            tensors,
            facts_of(config) if config else None,
            (*variants, *(variant for manifest in manifests for variant in manifest.variants)),
            (remarks_on(config) if config else ()) + remarks_on_manifests(files, manifests),
            files.bytes_read,
        )
    finally:
        files.close()


def _gate_container(
    files: PackageFiles, container: Opened, config: Survey | None, listed: bool, ledger: Ledger, progress: Progress
) -> tuple[tuple[Variant, ...], tuple[TensorReport, ...]]:
    """listed: a manifest gives its digest."""
    header = read_container_header(files, container, ledger)
    if header is None and not listed:
        # Nothing could be learned from its bytes, however many there are.
        container.unread = True
    inventory = None
    if config and header:
        inventory = check_tensors(config, header.tensors, container.name, ledger)
    measured = prepare(inventory) if inventory else Measured()
    if read_bytes(files, container, header, measured, ledger, progress) and config and header and inventory:
        tiles = check_packed(measured.packed, container.name, ledger)
        check_plain(measured.plain, config.generation, container.name, ledger)
        check_weights(tiles, measured.plain, container.name, ledger)
        check_scalars(config, measured, container.name, ledger)
        if not measured.packed:
            for check in OF_TILES:
                ledger.skip_unless_made(check, "no matrix is packed: their values are checked")
        return variants_of(header, inventory), _reports(inventory, measured)
    why = "the config cannot be read" if config is None else "the container was not read to its end"
    ledger.stop_unsaid(OF_CONTAINER, why if header else "the container's header is refused or cannot be read")
    return (), ()


def _skip_foreign(config: Survey, ledger: Ledger) -> None:
    """Checks of the other generation, and of forms that this package does not have."""
    for check in CHECKS:
        if config.generation and config.generation not in check.generations:
            ledger.skip(check.id, f"not of generation {config.generation}")
    ledger.skip_unless_made("matrices.values", "the matrices are packed: their scales and minimums are checked")
    if config.generation == 2:
        ledger.skip_unless_made("codebooks.values", "the codebooks are packed: their scales and minimums are checked")


def _reports(inventory: Inventory, measured: Measured) -> tuple[TensorReport, ...]:
    found = []
    for name, located in inventory.by_name.items():
        entry, role, encoding = located.entry, located.expected.role, located.encoding
        common = (name, entry.name, role.value, entry.dtype, entry.shape, encoding.kind.value if encoding else "plain")
        if name in measured.packed:
            packed = measured.packed[name][1]
            found.append(TensorReport(*common, packed_figures(packed), packed.scales(), packed.ratios()))
        elif name in measured.plain:
            plain = measured.plain[name][1]
            found.append(TensorReport(*common, plain_figures(plain), plain.magnitudes()))
        elif role == Role.SCALAR:
            found.append(TensorReport(*common, {}))
    return tuple(found)
