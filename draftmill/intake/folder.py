"""What files a folder holds, of which kind, and whether their names and forms are plain."""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from draftmill.intake.findings import Findings
from draftmill.intake.pickles import looks_pickled
from draftmill.intake.safetensors_header import LFS_POINTER

MOST_FILES = 10_000
DEEPEST = 8
LONGEST_NAME = 255

Kind = Literal["config", "weights", "index", "tokenizer", "pickle", "code", "notice", "other"]

CODE_SUFFIXES = {".py", ".pyc", ".pyd", ".pyx", ".so", ".dll", ".dylib"}
PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"}
VOCABULARY = {"tokenizer.json", "tokenizer.model", "vocab.json"}
"""Files any one of which makes a tokenizer; without one a repository holds weights only."""
TOKENIZER = VOCABULARY | {
    "tokenizer_config.json",
    "merges.txt",
    "vocab.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.json",
    "chat_template.jinja",
}
CONFIG = {"config.json", "generation_config.json"}


@dataclass
class Contents:
    """Files by path relative to the folder ("/" between parts), sorted.

    `present` has all of them, `kinds` only those that can be looked into (no pointers, no empty ones).
    """

    present: set[str] = field(default_factory=set)
    kinds: dict[str, Kind] = field(default_factory=dict)

    def of(self, kind: Kind) -> list[str]:
        return [path for path, its in self.kinds.items() if its == kind]


def list_folder(folder: Path, findings: Findings) -> Contents:
    """Walks the folder and reads the first bytes of each file.

    Codes: intake.folder_missing, too_many_files, name_not_plain, symlink_leaves, not_regular_file, lfs_pointer,
    file_empty, code_file.
    """
    contents = Contents()
    if not folder.is_dir():
        findings.add("intake.folder_missing", str(folder), "no folder", "a folder", "Give the folder of a model.")
        return contents
    root = folder.resolve()
    for path in _walk(folder, findings):
        relative = path.relative_to(folder).as_posix()
        if _check_form(path, relative, root, findings):
            contents.present.add(relative)
            _look_into(path, relative, contents, findings)
    return contents


def is_plain(name: str) -> bool:
    """Whether a name is that of one file right in a folder, on every system, and no option to a command."""
    return (
        0 < len(name.encode(errors="surrogateescape")) <= LONGEST_NAME
        and name.isprintable()
        and name not in (".", "..")
        and not name.startswith(("-", "~", " "))
        and not any(character in name for character in '/\\:*?"<>|')
    )


def _walk(folder: Path, findings: Findings) -> list[Path]:
    paths: list[Path] = []
    for where, folders, names in os.walk(folder):
        here = Path(where)
        paths += [here / name for name in names]
        # os.walk does not enter links to folders; they are entries to judge like any other.
        paths += [here / name for name in folders if (here / name).is_symlink() or not is_plain(name)]
        if len(paths) > MOST_FILES or len(here.relative_to(folder).parts) > DEEPEST:
            findings.add(
                "intake.too_many_files",
                _shown(here.relative_to(folder).as_posix()),
                len(paths),
                f"at most {MOST_FILES} files, {DEEPEST} folders deep",
                "The folder is larger than any model repository; give the folder of one model.",
            )
            return []
    return sorted(paths)


def _shown(name: str) -> str:
    """The name as text that can be written anywhere; bytes that are not UTF-8 become escapes."""
    return name.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _check_form(path: Path, relative: str, root: Path, findings: Findings) -> bool:
    shown = _shown(relative)
    if not all(map(is_plain, PurePosixPath(relative).parts)):
        findings.add(
            "intake.name_not_plain",
            shown,
            shown,
            "printable text without separators, of at most 255 bytes, not beginning with - or ~",
            "Tools could take this name for a path or an option; rename the file at its source.",
        )
        return False
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        findings.add(
            "intake.symlink_leaves",
            shown,
            _shown(os.readlink(path)),
            "a file in this folder",
            "The link leads out of the folder (or nowhere); copy the files themselves, e.g. with `cp -rL`.",
        )
        return False
    mode = path.stat().st_mode if path.exists() else 0
    if not stat.S_ISREG(mode):
        findings.add(
            "intake.not_regular_file",
            shown,
            stat.filemode(mode),
            "a regular file",
            "Only regular files and links to them may be in the folder; put the file itself here.",
        )
        return False
    return True


def _look_into(path: Path, relative: str, contents: Contents, findings: Findings) -> None:
    with path.open("rb") as file:
        start = file.read(max(len(LFS_POINTER), 8))
    kind = _kind(relative, start)
    if start.startswith(LFS_POINTER):
        findings.add(
            "intake.lfs_pointer",
            relative,
            path.stat().st_size,
            "the file itself",
            "This is a Git LFS pointer, not the file; run `git lfs pull` in the clone, or download from the hub.",
        )
    elif not start and kind not in ("other", "notice", "code"):
        findings.add("intake.file_empty", relative, 0, "content", "The file is empty; fetch it again.")
    else:
        contents.kinds[relative] = kind
    if kind == "code":
        findings.add(
            "intake.code_file",
            relative,
            PurePosixPath(relative).suffix,
            "no code",
            "The repository carries code, and converters run such code; only models without code of their own enter.",
        )


def _kind(relative: str, start: bytes) -> Kind:
    path = PurePosixPath(relative)
    name, suffix = path.name, path.suffix.lower()
    if suffix in CODE_SUFFIXES:
        return "code"
    if name.endswith(".safetensors.index.json"):
        return "index"
    if suffix == ".safetensors":
        return "weights"
    if suffix in PICKLE_SUFFIXES or looks_pickled(start):
        return "pickle"
    if len(path.parts) == 1 and name in CONFIG:
        return "config"
    if len(path.parts) == 1 and name in TOKENIZER:
        return "tokenizer"
    if name.upper().startswith(("LICENSE", "LICENCE", "NOTICE", "README", "USE_POLICY")):
        return "notice"
    return "other"
