"""Files that torch.save wrote (`.bin`, `.pt`): what they hold and import, read without unpickling.

The format is told from the content, never from the name (CVE-2025-10155). Two are known: the zip archive
(one folder with data.pkl and data/<number>) and the older stream of five pickles followed by raw storages.
"""

import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from draftmill.intake import pickle_symbols
from draftmill.intake.findings import Findings
from draftmill.intake.pickle_symbols import Symbols

PICKLE_LIMIT = 16 << 20
"""Bytes of pickled structure; a checkpoint of ten thousand tensors takes about 2 MB."""
ZIP_MAGIC = b"PK\x03\x04"
LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle of the older format: torch's magic number as a long."""
_ENTRY = re.compile(
    r"[^/\\]+/(data\.pkl|data/\d+|version|byteorder|\.format_version|\.storage_alignment|\.data/serialization_id)"
)
_SAFE = "publish the weights as safetensors, or remove the file when nothing needs it."


@dataclass(frozen=True)
class PickledTensor:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PickleFile:
    """What is known of a pickled file. format: "zip", "legacy" or None; globals as "module.name", in order."""

    format: str | None
    size: int
    globals: tuple[str, ...] = ()
    tensors: tuple[PickledTensor, ...] = ()


def looks_pickled(start: bytes) -> bool:
    """Whether a file with these first bytes could be unpickled by something."""
    return start.startswith(ZIP_MAGIC) or (start[:1] == b"\x80" and 2 <= start[1:2].ljust(1, b"\0")[0] <= 5)


def scan(path: Path, where: str) -> tuple[PickleFile, Findings]:
    """Reads the structure of a pickled file and lists what is wrong with it.

    Codes: intake.pickle_unknown, pickle_archive, pickle_archive_entry, pickle_too_large, pickle_malformed,
    pickle_opcode, pickle_global, pickle_storage. Raises OSError when the file cannot be read.
    """
    findings = Findings()
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(len(LEGACY_MAGIC))
        if start.startswith(ZIP_MAGIC):
            kind, found = "zip", _scan_zip(file, size, where, findings)
        elif start == LEGACY_MAGIC:
            file.seek(0)
            kind, found = "legacy", _scan_legacy(file.read(PICKLE_LIMIT), size, where, findings)
        else:
            findings.add(
                "intake.pickle_unknown",
                where,
                start.hex(),
                "torch's zip archive or its older stream",
                f"The file is neither form that torch.save writes, so it cannot be inspected; {_SAFE}",
            )
            return PickleFile(None, size), findings
    _report(found, where, findings)
    names = dict.fromkeys(name.replace(" ", ".", 1) for symbols in found for name in symbols.globals)
    tensors = [
        PickledTensor(name, tensor.storage.dtype, tensor.shape)
        for symbols in found
        for name, tensor in pickle_symbols.tensors(symbols.value).items()
    ]
    return PickleFile(kind, size, tuple(names), tuple(tensors)), findings


def _report(found: list[Symbols], where: str, findings: Findings) -> None:
    foreign = [
        name
        for name in dict.fromkeys(name for symbols in found for name in symbols.globals)
        if name not in pickle_symbols.ALLOWED
    ]
    for name in foreign:
        findings.add(
            "intake.pickle_global",
            where,
            name.replace(" ", ".", 1)[:200],
            sorted(allowed.replace(" ", ".") for allowed in pickle_symbols.CALLABLE),
            f"Loading this file would import a name that no file of plain tensors needs; {_SAFE}",
        )
    opcodes = list(dict.fromkeys(opcode for symbols in found for opcode in symbols.opcodes))
    for opcode in opcodes:
        findings.add(
            "intake.pickle_opcode",
            where,
            opcode,
            "the opcodes torch.save emits for tensors",
            f"The pickle does what no file of plain tensors does, so what it builds is not known; {_SAFE}",
        )
    # A name or opcode that is not followed loses the stack: the problem is then only its consequence.
    for problem in (symbols.problem for symbols in found if symbols.problem and not foreign and not opcodes):
        findings.add(
            "intake.pickle_malformed",
            where,
            problem,
            "a pickle of tensors in dictionaries",
            f"The pickle is damaged or not one that torch.save writes; fetch it again, {_SAFE}",
        )


def _scan_zip(file: io.BufferedReader, size: int, where: str, findings: Findings) -> list[Symbols]:
    try:
        archive = zipfile.ZipFile(file)
        entries = archive.infolist()
        _check_archive(entries, size, where, findings)
        pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if findings:
            return []
        if pickles[0].file_size > PICKLE_LIMIT:
            findings.add(
                "intake.pickle_too_large",
                f"{where}:{pickles[0].filename}",
                pickles[0].file_size,
                PICKLE_LIMIT,
                f"The pickled structure is larger than any checkpoint needs; {_SAFE}",
            )
            return []
        # Reading to the end is what makes zipfile compare the CRC, which torch does not (CVE-2025-10156).
        content = archive.read(pickles[0])
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OverflowError) as error:
        findings.add(
            "intake.pickle_archive",
            where,
            str(error)[:200],
            "a sound zip archive",
            "The archive is damaged, or made to be read differently by different tools; fetch it again.",
        )
        return []
    symbols = pickle_symbols.follow(io.BytesIO(content))
    folder = pickles[0].filename.removesuffix("data.pkl")
    sizes = {entry.filename: entry.file_size for entry in entries}
    for key, storage in symbols.storages.items():
        measured, expected = sizes.get(f"{folder}data/{key}"), storage.count * storage.item_bytes
        if measured != expected:
            findings.add(
                "intake.pickle_storage",
                f"{where}:{folder}data/{key}",
                measured,
                expected,
                "The archive does not hold the bytes that its pickle describes; fetch the file again.",
            )
    return [symbols]


def _check_archive(entries: list[zipfile.ZipInfo], size: int, where: str, findings: Findings) -> None:
    problems = {
        "does not begin with its first entry": not entries or min(entry.header_offset for entry in entries) != 0,
        "is larger inside than outside": sum(entry.file_size for entry in entries) > size,
        "holds a name twice": len({entry.filename for entry in entries}) != len(entries),
        "has no single data.pkl": sum(entry.filename.endswith("/data.pkl") for entry in entries) != 1,
        "has more than one folder": len({entry.filename.split("/")[0] for entry in entries}) > 1,
        "is encrypted or compressed": any(entry.flag_bits & 1 or entry.compress_type for entry in entries),
    }
    for problem in (text for text, wrong in problems.items() if wrong):
        findings.add(
            "intake.pickle_archive",
            where,
            f"the archive {problem}",
            "one folder with data.pkl, stored as it is",
            f"torch.save writes no such archive, and tools read it in different ways; {_SAFE}",
        )
    for entry in entries:
        if not _ENTRY.fullmatch(entry.filename):
            findings.add(
                "intake.pickle_archive_entry",
                where,
                entry.filename[:200],
                "data.pkl, data/<number>, version, byteorder and the like",
                f"The archive holds a file that torch.save does not write for tensors; {_SAFE}",
            )


def _scan_legacy(window: bytes, size: int, where: str, findings: Findings) -> list[Symbols]:
    stream = io.BytesIO(window)
    found: list[Symbols] = []
    while len(found) < 5:
        found.append(pickle_symbols.follow(stream))
        if not found[-1].complete:
            return found
    # Fourth the object, fifth the storages' keys; each storage is its count in 8 bytes and its elements.
    storages, keys = found[3].storages, found[4].value
    expected = stream.tell() + sum(8 + storage.count * storage.item_bytes for storage in storages.values())
    followed = not any(symbols.opcodes or symbols.problem for symbols in found)
    if followed and (size != expected or not isinstance(keys, list) or not _same_keys(keys, storages)):
        findings.add(
            "intake.pickle_storage",
            where,
            size,
            expected,
            "The file does not hold the bytes that its pickle describes; fetch it again.",
        )
    return found


def _same_keys(keys: list[object], storages: dict[str, pickle_symbols.Storage]) -> bool:
    return len(keys) == len(storages) and all(isinstance(key, str) and key in storages for key in keys)
