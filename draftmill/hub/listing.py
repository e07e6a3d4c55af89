"""A pinned listing: which files at which commit, with the size and digest that each must have.

As JSON this is a fact of the resolve job, a parameter of the download job, and `.listing.json` in a mirror.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from draftmill.hub.paths import check_paths
from draftmill.outcome import BadConfiguration, Refusal, Refused

Selection = Literal["model", "tokenizer", "package", "draft"]

TOKENIZER = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "tokenizer.model",
)
LICENCES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "USE_POLICY*", "README.md")
# *.py and *.bin are taken so that intake sees, and judges, what the repository really is.
WEIGHTS = ("generation_config.json", "*.safetensors", "*.safetensors.index.json", "*.bin", "*.bin.index.json", "*.py")
# A FastFlowLM draft package, which is gated and not converted.
PACKAGE = ("config.json", "*.q4nx", "MANIFEST*")
# A DFlash checkpoint: upstream ships code beside it, which nothing here reads. A mask row of its own is taken so that
# the converter sees it, and refuses.
DRAFT = ("*.safetensors", "*.safetensors.index.json", "mask_embedding.pt")
PATTERNS: dict[Selection, tuple[str, ...]] = {
    "model": TOKENIZER + LICENCES + WEIGHTS,
    "tokenizer": TOKENIZER + LICENCES,
    "package": PACKAGE + LICENCES,
    "draft": TOKENIZER + LICENCES + DRAFT,
}

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListedFile(Frozen):
    """size in bytes. sha256 of the content, or for files that the hub keeps in git the blob id
    (SHA-1 over b"blob <size>\\0" and the content); one of the two at least."""

    path: str
    size: int = Field(ge=0)
    sha256: Sha256 | None = None
    blob_id: Sha1 | None = None

    @model_validator(mode="after")
    def _has_a_digest(self) -> "ListedFile":
        if not (self.sha256 or self.blob_id):
            raise ValueError(f"{self.path} has neither sha256 nor blob_id: it could not be verified")
        return self


class Listing(Frozen):
    """commit: the hub's, or for a mirror or folder without one the SHA-256 of the files' names, sizes and digests.
    licence: as the model card names it (SPDX id in lower case, where there is one). not_taken: what was left aside."""

    repo: str | None
    requested_revision: str
    commit: str = Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")
    source: Literal["hub", "mirror", "folder"]
    licence: str | None = None
    base_models: tuple[str, ...] = ()
    gated: Literal[False, "auto", "manual"] = False
    files: tuple[ListedFile, ...]
    not_taken: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def as_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def selection_of(value: Any) -> Selection:
    """The selection of this name. Raises BadConfiguration."""
    for name in PATTERNS:
        if name == value:
            return name
    raise BadConfiguration(f"files is {value!r}; it is one of: {', '.join(PATTERNS)}.", code="hub.selection")


def is_taken(path: str, selection: Selection) -> bool:
    """Only files directly in the repository's folder are taken."""
    return "/" not in path and any(fnmatchcase(path, pattern) for pattern in PATTERNS[selection])


def select(paths: Iterable[str], selection: Selection, where: str) -> tuple[list[str], list[str]]:
    """(taken, not taken), sorted. Raises Refused with every name that is not plain, or hub.nothing_taken."""
    paths = sorted(paths)
    taken = [path for path in paths if is_taken(path, selection)]
    aside = [path for path in paths if not is_taken(path, selection)]
    # Twins matter only among what is written; a name that leaves the folder matters anywhere.
    findings = check_paths(taken) + [f for path in aside for f in check_paths([path]) if not path.endswith(".partial")]
    if not findings and not taken:
        sentence = f"None of its files is one that a {selection} has here. Check the name and the revision."
        findings.append(Refusal("hub.nothing_taken", where, aside[:20], list(PATTERNS[selection]), sentence))
    if findings:
        raise Refused(*findings)
    return taken, aside
