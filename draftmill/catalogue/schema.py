"""What config/catalogue.yaml may say: families by rule, drafters by name, and the targets that pairs are judged with.

Values are text as the file has it (see `draftmill.settings_file`); these models type them.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from draftmill.hub.ref import DEFAULT_REVISION, REVISION
from draftmill.outcome import Refused
from draftmill.store.keys import check_key

REFUSE = "refuse"
"""The route of families that have a reason and no conversion."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CODE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_ROUTE = re.compile(r"[a-z][a-z0-9_]*")


def _repo(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2 or not all(_NAME.fullmatch(part) for part in parts):
        raise ValueError("must be owner/repo")
    return text


def _pinned(text: str) -> str:
    repo, at, revision = text.partition("@")
    _repo(repo)
    if not at or not REVISION.fullmatch(revision):
        raise ValueError("must be owner/repo@revision, best a commit: a proof that rests on it then stays the same")
    return text


def _pattern(text: str) -> str:
    author, slash, name = text.partition("/")
    if not slash or not name or "/" in name or not _NAME.fullmatch(author):
        raise ValueError("must be author/pattern, with the author in full")
    return text


def _code(text: str) -> str:
    if not _CODE.fullmatch(text):
        raise ValueError("must be lower-case words joined by dots, such as gumiho.no_config")
    return text


def _route(text: str) -> str:
    if not _ROUTE.fullmatch(text):
        raise ValueError("must be the name of a module in flows/routes")
    return text


def _revision(text: str) -> str:
    if not REVISION.fullmatch(text) or ".." in text:
        raise ValueError("must be a branch, tag or commit")
    return text


def _publishable(text: str) -> str:
    try:
        return check_key(_repo(text))
    except Refused as refused:
        raise ValueError(refused.refusals[0].sentence) from None


def _quants(given: object) -> object:
    """What a run cannot make would be published as the drafter's fault."""
    from draftmill.gguf.mixes import MIXES  # numpy is heavy, and most rows name none

    if not isinstance(given, list | tuple):
        raise ValueError("must be a list")
    if not given:
        raise ValueError("is empty; leave it out for the default")
    if wrong := [repr(each) for each in given if not (isinstance(each, str) and each in MIXES)]:
        raise ValueError(f"no encoding is called {', '.join(wrong)}; they are {', '.join(MIXES)}")
    if len(set(given)) < len(given):
        raise ValueError("names an encoding twice")
    return given


Repo = Annotated[str, AfterValidator(_repo)]
Revision = Annotated[str, AfterValidator(_revision)]
Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
Quants = Annotated[tuple[str, ...], BeforeValidator(_quants)]
Some = Annotated[str, Field(min_length=1)]
Sentence = Annotated[str, Field(min_length=10)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sign(Part):
    """What a repository of the family shows; all that is given has to hold.

    config: dotted place in config.json -> text, or several of which one has to be there; a list with one element counts
    as that element; (integer), (present) and (absent) stand for what they say. files, without: patterns of file names
    of which each matches one, or none does. tensors, without_tensors: the same for names in the weights' headers.
    """

    config: dict[str, Texts] = Field(default_factory=dict)
    files: tuple[Some, ...] = ()
    without: tuple[Some, ...] = ()
    tensors: tuple[Some, ...] = ()
    without_tensors: tuple[Some, ...] = ()

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.config or self.files or self.without or self.tensors or self.without_tensors):
            raise ValueError("is empty, so that every repository would show it")
        if "" in self.config:
            raise ValueError("config has an empty place")
        if empty := [place for place, texts in self.config.items() if not texts]:
            raise ValueError(f"config allows no text at {', '.join(empty)}, so that no repository would show it")
        return self

    @property
    def is_weak(self) -> bool:
        """It looks at no metadata, so it counts only together with the family's names."""
        return not (self.config or self.tensors or self.without_tensors)


class Reason(Part):
    """Why a family is refused. code: stable; when: the premise, measured on the repository at each run, and none for
    a fact about our side; measured: that fact; source: where it is from; would_change: what to look at again."""

    code: Annotated[str, AfterValidator(_code)]
    when: Sign | None = None
    measured: str = ""
    expected: Sentence
    sentence: Sentence
    source: Sentence
    would_change: Sentence

    @model_validator(mode="after")
    def _has_a_fact(self) -> Self:
        if (self.when is None) == (not self.measured):
            raise ValueError("give when (what the repository has to show) or measured (a fact about our side)")
        return self


class Family(Part):
    """names: author/pattern; a name alone decides only where `signs` look at no metadata. quants: encodings to make.
    reasons: for the route refuse."""

    route: Annotated[str, AfterValidator(_route)]
    names: Annotated[tuple[Annotated[str, AfterValidator(_pattern)], ...], Field(min_length=1)]
    signs: Annotated[tuple[Sign, ...], Field(min_length=1)]
    quants: Quants = ()
    reasons: tuple[Reason, ...] = ()

    @model_validator(mode="after")
    def _reasons_belong_to_refuse(self) -> Self:
        if (self.route == REFUSE) != bool(self.reasons):
            raise ValueError("reasons and the route refuse belong together")
        return self

    def names_it(self, repo: str) -> bool:
        return any(fnmatchcase(repo, pattern) for pattern in self.names)


class Drafter(Part):
    """What is known of a repository by name. family: for a reader; metadata decides, and a contradiction is told.

    licence: what its card says, as far as known; donor: whose tokenizer it borrows; trained_for: targets, of which any
    other is an off-pair; derived_from: models that it was made from and that its card does not name; upstream: where
    its weights come from. The licences of all of them are inherited. publish_as, licence_as, licence_statement,
    licence_files, quants, converter: as the options of `draftmill convert`; paths are from the catalogue's folder. Of a
    DFlash draft, converter says who writes its target's vocabulary.
    """

    family: Some | None = None
    revision: Revision = DEFAULT_REVISION
    licence: Some | None = None
    donor: Annotated[str, AfterValidator(_pinned)] | None = None
    trained_for: tuple[Repo, ...] = ()
    derived_from: tuple[Repo, ...] = ()
    upstream: Repo | None = None
    publish_as: Annotated[str, AfterValidator(_publishable)] | None = None
    licence_as: Some | None = None
    licence_statement: Some | None = None
    licence_files: tuple[Path, ...] = ()
    quants: Quants = ()
    converter: Literal["native", "stock"] = "native"
    note: str = ""


class LicenceText(Part):
    """Where an operator put the text of a licence, for every drafter that inherits it; from the catalogue's folder."""

    files: Annotated[tuple[Path, ...], Field(min_length=1)]


class Target(Part):
    """A model whose tokenizer drafts are compared with."""

    revision: Revision = DEFAULT_REVISION


NOTHING_KNOWN = Drafter()
