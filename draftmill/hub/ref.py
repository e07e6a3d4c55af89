"""What a person calls a model: `owner/repo[@revision]`, or a folder."""

import re
from dataclasses import dataclass
from pathlib import Path

from draftmill.outcome import Refusal, Refused

DEFAULT_REVISION = "main"
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,254}")
FOLDER_STARTS = ("/", "./", "../", "~")
ADVICE = "Write owner/repo, owner/repo@revision, or the path of a folder."


@dataclass(frozen=True)
class Ref:
    """A repository at a revision (branch, tag or commit), or a local folder; never both."""

    repo: str | None = None
    revision: str = DEFAULT_REVISION
    folder: Path | None = None

    def __str__(self) -> str:
        return str(self.folder) if self.folder else f"{self.repo}@{self.revision}"


def parse_ref(text: str) -> Ref:
    """Reads a reference. A name of the hub's form that is also a folder here is refused, not guessed at:
    `./owner/repo` says folder, `owner/repo@main` says hub.

    Raises Refused with code hub.ref or hub.ref_ambiguous.
    """
    if text in (".", "..") or text.startswith(FOLDER_STARTS):
        folder = Path(text).expanduser()
        if not folder.is_dir():
            raise _refused(text, "There is no folder of this path.")
        return Ref(folder=folder.resolve())
    if "://" in text:
        raise _refused(text, f"An address is not a reference. {ADVICE}")
    repo, at, revision = text.partition("@")
    if not is_repo_name(repo):
        if text and Path(text).is_dir():
            return Ref(folder=Path(text).resolve())
        raise _refused(text, f"This is neither a repository name nor a folder that exists. {ADVICE}")
    if not at:
        if Path(text).is_dir():
            sentence = f"A folder has this name too. Write ./{text} for the folder, {text}@main for the repository."
            raise Refused(Refusal("hub.ref_ambiguous", text, "folder and name", "one of the two", sentence))
        return Ref(repo=repo)
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise _refused(text, "What follows @ is not a branch, tag or commit.")
    return Ref(repo=repo, revision=revision)


def is_repo_name(text: str) -> bool:
    """Is this `owner/repo` by the hub's own rules (huggingface_hub's validator)?"""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(text)
    except HFValidationError:
        return False
    return text.count("/") == 1


def _refused(text: str, sentence: str) -> Refused:
    return Refused(Refusal("hub.ref", text, text, "owner/repo[@revision] or a folder", sentence))
