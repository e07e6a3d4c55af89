"""What a repository shows of itself before it is downloaded: file names, config.json and the names in the headers."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from draftmill.hub.checksum import Checksum
from draftmill.hub.listing import ListedFile, Listing, Selection
from draftmill.hub.local import LocalFiles, mirror_folder
from draftmill.hub.patience import Pause, persist
from draftmill.hub.ref import Ref
from draftmill.hub.remote import HubFiles
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Folder, Hub, Source
from draftmill.intake.bounded_json import parse_object
from draftmill.outcome import InputOutput

CONFIG = "config.json"
LARGEST_CONFIG = 1 << 20
LARGEST_HEADER = 16 << 20
CONTAINER = "*.q4nx"
WEIGHTS = (CONTAINER, "*.safetensors")
_LENGTH = 8
_METADATA = "__metadata__"


@dataclass(frozen=True)
class Evidence:
    """files: every name in the repository's folder; config: None without a config.json; read_tensors: gives the names
    in the weights' headers, asked for only where a rule needs them."""

    repo: str
    files: tuple[str, ...]
    config: Mapping[str, Any] | None
    read_tensors: Callable[[], frozenset[str]] = field(default=frozenset, compare=False)

    @cached_property
    def tensors(self) -> frozenset[str]:
        return self.read_tensors()

    def named(self, pattern: str) -> list[str]:
        return [name for name in self.files if fnmatchcase(name, pattern)]


def selection_for(files: Iterable[str]) -> Selection:
    """What the mill takes of a repository with files of these names."""
    return "package" if any(fnmatchcase(name, CONTAINER) for name in files) else "model"


def look(ref: Ref, source: Source, files: Iterable[str] = (), *, pause: Pause = time.sleep) -> tuple[Listing, Evidence]:
    """What the repository shows now, and the listing of what the mill would take of it. Reads config.json, and of the
    weights the headers where they are asked for. files: names, as far as they are known from a list.

    Raises what `resolve` does, and Refused for JSON that is none.
    """
    selection = selection_for(files)
    listing = resolve(ref, source, selection, pause=pause)
    names = (*(file.path for file in listing.files), *listing.not_taken)
    if selection_for(names) != selection:
        listing = resolve(ref, source, selection_for(names), pause=pause)
    by_name = {file.path: file for file in listing.files}
    config = None
    if CONFIG in by_name:
        raw = _start(by_name[CONFIG], listing, source, LARGEST_CONFIG, pause)
        config = parse_object(raw, f"{listing.repo}/{CONFIG}")
    return listing, Evidence(
        listing.repo or str(ref), tuple(sorted(names)), config, lambda: frozenset(_tensors(listing, source, pause))
    )


def _tensors(listing: Listing, source: Source, pause: Pause) -> Iterator[str]:
    for file in listing.files:
        if any(fnmatchcase(file.path, pattern) for pattern in WEIGHTS):
            length = int.from_bytes(_start(file, listing, source, _LENGTH, pause), "little")
            if length <= min(LARGEST_HEADER, file.size):
                raw = _start(file, listing, source, _LENGTH + length, pause)[_LENGTH:]
                yield from (name for name in parse_object(raw, file.path) if name != _METADATA)


def _start(file: ListedFile, listing: Listing, source: Source, most: int, pause: Pause) -> bytes:
    """The first bytes of a file; of a whole file they are verified."""

    def read() -> bytes:
        checksum, pieces, count = Checksum(file), [], 0
        with _files(listing, source).open_at(file, 0) as (_, stream):
            for piece in stream:
                pieces.append(piece)
                checksum.update(piece)
                count += len(piece)
                if count >= most:
                    break
        if count >= file.size and not checksum.agrees:
            sentence = f"{listing.repo}/{file.path} is not what the listing says. Run it once more."
            raise InputOutput(sentence, code="catalogue.digest", where=file.path)
        return b"".join(pieces)[:most]

    return persist(read, pause)


def _files(listing: Listing, source: Source) -> Any:
    if isinstance(source, Hub):
        return HubFiles(source, listing)
    return LocalFiles(source.root if isinstance(source, Folder) else mirror_folder(source.root, listing.repo or ""))


def text_of(value: Any) -> str:
    """A JSON value as the catalogue writes it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
