"""The manifest: the JSON that commits a publication and says where it comes from.

manifest.json lies beside the files it lists, below `models/<owner>/<repo>/<commit12>-<recipe8>/` (or `packages/...`).
The recipe digest is known before any work is done: it covers what goes in and the code that works on it, and neither
the time nor the machine, so that two runs of one recipe meet in one folder.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from draftmill.digest import sha256_json
from draftmill.licences.lineage import Ancestor
from draftmill.outcome import Refusal, Refused
from draftmill.store.clearing import being_cleared, is_mark
from draftmill.store.keys import check_key, check_keys

NAME = "manifest.json"
INHERITS = "inherits"
"""The parameter with the licences that bind by what was asked for, and digests of their texts: `obligations` says it
for people."""
TOP = {"model": "models", "package": "packages"}

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Kind = Literal["model", "package"]
Role = Literal["model", "sidecar", "tokenizer", "licence", "evidence"]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceFile(Strict):
    """A file of the source repository; at least one of the two hashes is known."""

    path: str
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256 | None = None
    blob_id: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None

    @model_validator(mode="after")
    def _is_hashed(self) -> "SourceFile":
        if not (self.sha256 or self.blob_id):
            raise ValueError(f"{self.path} has neither sha256 nor blob_id")
        return self


class Source(Strict):
    """Where bytes came from: a listing, pinned. `repo` is None for a folder; `commit` is then the listing's sha256.
    `hub` is the address that it was read at, `licence` what it says of itself."""

    origin: Literal["hub", "mirror", "folder"]
    repo: str | None
    requested_revision: str
    hub: str | None = None
    commit: Commit
    licence: str | None = None
    base_models: tuple[str, ...] = ()
    files: tuple[SourceFile, ...]


class Donor(Strict):
    """Whose tokenizer was borrowed, and the digest of the proof that it is the right one."""

    source: Source
    proof: Sha256


class File(Strict):
    """A published file: its path below the manifest's folder, bytes, digest, and what it is for."""

    path: str
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256
    role: Role


class Tool(Strict):
    """What worked on it: a program or library, its version, and the digest of its file or image where there is one."""

    name: str
    version: str
    digest: str | None = None


class Licence(Strict):
    """`id`: SPDX's name, or the hub's (None: the source names none). `text`: where its text is, a published path or a
    link. `statement`: by which right it is published, in the publisher's words, where the licence alone does not say.
    """

    id: str | None
    text: str | None = None
    statement: str | None = None


class Obligation(Strict):
    """A licence whose terms travel along, and how they are met: `because_of` is "itself" or names of ancestors;
    `agreement` and `notice` are published paths, `display` is among the notices, models' names begin with
    `name_begins`."""

    licence: str
    because_of: tuple[str, ...]
    agreement: str | None = None
    notice: str | None = None
    display: str | None = None
    name_begins: str | None = None


class Manifest(Strict):
    """What is published, from what, by what, under which licence, and what the artifact can and cannot do.

    `entry` is the "owner/repo" it is published under. `job_keys` are the keys of the job runs that made the files,
    `job_results` the digests of what those said (result.json, in the job cache of the mill that ran them), `parameters`
    what was asked for, with the ancestors that were named. `lineage` is what it was made from and trained for,
    `obligations` the licences that bind because of it. `notices` are lines that travel with the files. `created`,
    `job_results` and the addresses of hubs are the only members that differ between two runs of one order on one
    machine.
    """

    schema_version: Literal[1] = 1
    kind: Kind
    entry: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")]
    recipe: Sha256
    source: Source
    donor: Donor | None = None
    files: Annotated[tuple[File, ...], Field(min_length=1)]
    tools: tuple[Tool, ...]
    parameters: dict[str, Any]
    job_keys: dict[str, str]
    job_results: dict[str, Sha256] = {}
    licence: Licence
    lineage: tuple[Ancestor, ...] = ()
    obligations: tuple[Obligation, ...] = ()
    notices: tuple[str, ...] = ()
    can: tuple[str, ...]
    cannot: tuple[str, ...]
    created: datetime

    @model_validator(mode="after")
    def _is_consistent(self) -> "Manifest":
        if self.created.tzinfo is None:
            raise ValueError("created has no time zone")
        paths = [file.path for file in self.files]
        if len(set(paths)) != len(paths):
            raise ValueError("a path is listed twice")
        check_keys([NAME, *paths])
        return self

    @property
    def folder(self) -> str:
        """The key of the folder that this manifest commits."""
        return folder_key(self.kind, self.entry, self.source.commit, self.recipe)

    @property
    def key(self) -> str:
        return f"{self.folder}/{NAME}"

    @property
    def terms(self) -> str | None:
        """Its own licence and every other that binds: "MIT + llama3.2". None where none is named and none binds."""
        named = [self.licence.id, *(obligation.licence for obligation in self.obligations)]
        return " + ".join(dict.fromkeys(name for name in named if name)) or None

    def key_of(self, path: str) -> str:
        return f"{self.folder}/{path}"

    def to_bytes(self) -> bytes:
        return (self.model_dump_json(indent=1) + "\n").encode()


def folder_key(kind: Kind, entry: str, commit: str, recipe: str) -> str:
    """models/<owner>/<repo>/<commit12>-<recipe8>"""
    return check_key(f"{TOP[kind]}/{entry}/{commit[:12]}-{recipe[:8]}")


def recipe_digest(source: str, parameters: Mapping[str, Any], jobs: Mapping[str, str], donor: str | None = None) -> str:
    """The sha256 of a recipe, known once the source is resolved.

    source, donor: commits; parameters: every parameter of every job that changes the result, as JSON values; jobs: job
    name -> digest of its code or image.
    """
    return sha256_json(
        {"recipe": 1, "source": source, "donor": donor, "parameters": dict(parameters), "jobs": dict(jobs)}
    )


def read_manifest(data: bytes, where: str) -> Manifest:
    """The manifest, or Refused("store.manifest") with what is wrong with it, or Temporary("store.cleared")."""
    if is_mark(data):
        raise being_cleared(where)
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        raise Refused(
            *(
                Refusal(
                    "store.manifest",
                    f"{where}: {'.'.join(map(str, problem['loc']))}",
                    repr(problem.get("input"))[:200],
                    problem["msg"],
                    "This is not a manifest of schema version 1; it was written by another version of "
                    "draftmill or changed by hand. Publish again into another store, or use that version.",
                )
                for problem in error.errors()
            )
        ) from None
