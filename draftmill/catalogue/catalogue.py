"""config/catalogue.yaml as values: read whole, every wrong line told."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from draftmill.catalogue.schema import NOTHING_KNOWN, Drafter, Family, LicenceText, Repo, Target
from draftmill.digest import sha256_json
from draftmill.licences.terms import KNOWN, terms_of
from draftmill.outcome import BadConfiguration
from draftmill.settings_file import Place, read_document

CODE = "catalogue.file"
EXAMPLE = "config/catalogue.yaml"
SECTIONS: dict[str, Any] = {"families": Family, "drafters": Drafter, "targets": Target, "licences": LicenceText}
_NAMED_FREELY = ("families", "licences")


@dataclass(frozen=True)
class Catalogue:
    """families: name -> rule; drafters and targets: owner/repo -> what is known of it; licences: a licence's id -> the
    files of its text. path: the file, which is read again when a line of it has to be named: of ten thousand rows the
    lines alone take most of the memory."""

    families: Mapping[str, Family]
    drafters: Mapping[str, Drafter]
    targets: Mapping[str, Target]
    path: Path
    licences: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def authors(self) -> tuple[str, ...]:
        """Everyone who is named by a drafter or a family, in order."""
        names = [*self.drafters, *(name for family in self.families.values() for name in family.names)]
        return tuple(sorted({name.partition("/")[0] for name in names}))

    @cached_property
    def rules_digest(self) -> str:
        """Changes when a repository could be of another family than before, or refused for other reasons."""
        return sha256_json({name: family.model_dump(mode="json") for name, family in self.families.items()})

    def drafter(self, repo: str) -> Drafter:
        return self.drafters.get(repo, NOTHING_KNOWN)

    def family_by_name(self, repo: str) -> str | None:
        """The family whose names it has, which is not yet the family it is of."""
        return next((name for name, family in self.families.items() if family.names_it(repo)), None)

    def wrong(self, problems: Iterable[tuple[Place, str]]) -> BadConfiguration:
        settings = read_document(self.path, code=CODE, example=EXAMPLE)
        return BadConfiguration(settings.explain(problems), code=CODE, where=str(self.path))


def load_catalogue(path: Path) -> Catalogue:
    """Raises BadConfiguration that names every wrong line."""
    settings = read_document(path, code=CODE, example=EXAMPLE)
    wrong: list[tuple[Place, str]] = [
        ((name,), f"is no section; they are {', '.join(SECTIONS)}") for name in settings if name not in SECTIONS
    ]
    read: dict[str, dict[str, Any]] = {}
    for section, model in SECTIONS.items():
        given = settings.get(section) or {}
        if not isinstance(given, dict):
            wrong.append(((section,), "must be a mapping of names"))
            given = {}
        read[section] = dict(_read(section, model, given, wrong))
    folder = path.absolute().parent
    licences = {
        terms.id: tuple(folder / file for file in each.files)
        for name, each in read["licences"].items()
        if (terms := terms_of(name))
    }
    drafters = {repo: _placed(drafter, folder) for repo, drafter in read["drafters"].items()}
    catalogue = Catalogue(read["families"], drafters, read["targets"], path, licences)
    if not settings.get("families"):
        wrong.append(((), "has no section families, so nothing could be told apart"))
    if not settings.twice:  # else what is named may be in the part that does not count
        wrong += _check_names(catalogue, settings.get("families") or ())
    wrong += _check_texts(catalogue, read["licences"])
    if wrong or settings.twice:
        raise catalogue.wrong(wrong)
    return catalogue


_REPO = TypeAdapter(Repo)


def _read(section: str, model: Any, given: dict[str, Any], wrong: list[tuple[Place, str]]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        try:
            if section not in _NAMED_FREELY:
                _REPO.validate_python(name)
            # `amd/PARD-Qwen3-0.6B:` with nothing behind it is a row of which nothing more is known.
            yield name, model.model_validate({} if value == "" else value)
        except ValidationError as error:
            problems = [problem for problem in error.errors() if not _follows(problem, error)]
            wrong += [((section, name, *problem["loc"]), _words(problem)) for problem in problems]


_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is no key here",
    "tuple_type": "must be a list",
    "model_type": "must be a mapping of keys",
    "dict_type": "must be a mapping of keys",
    "string_type": "must be text",
    "path_type": "must be a path",
    "too_short": "is empty; it needs one at least",
}


def _follows(problem: Any, error: ValidationError) -> bool:
    """A list that is too short because its items are wrong: those are told."""
    at = problem["loc"]
    return problem["type"] == "too_short" and any(
        other["loc"][: len(at)] == at and other["loc"] != at for other in error.errors()
    )


def _words(problem: Any) -> str:
    """In the words of the file's author, where pydantic's own speak of Python."""
    if problem["type"] == "string_too_short":
        least = problem["ctx"]["min_length"]
        return "is empty" if least == 1 else f"must be a sentence, of {least} characters at least"
    words: str = _WORDS.get(problem["type"], problem["msg"])
    return words.removeprefix("Value error, ")


def _check_names(catalogue: Catalogue, families: Container[str]) -> Iterator[tuple[Place, str]]:
    """families: all that the file names, those too in which something is wrong."""
    for repo, drafter in catalogue.drafters.items():
        if drafter.family and drafter.family not in families:
            yield ("drafters", repo, "family"), f"there is no family {drafter.family}"
    published = defaultdict(list)
    for repo, drafter in catalogue.drafters.items():
        published[drafter.publish_as or repo].append(repo)
    for name, repos in published.items():
        for repo in repos if len(repos) > 1 else ():
            if repo != name:
                other = next(each for each in repos if each != repo)
                yield ("drafters", repo, "publish_as"), f"{other} is published as {name} too"
    for repo, drafter in catalogue.drafters.items():
        if drafter.licence_as and not drafter.licence_statement and terms_of(drafter.licence_as) is None:
            sentence = f"no licence {drafter.licence_as} is known here; say by which right with licence_statement"
            yield ("drafters", repo, "licence_as"), f"{sentence}, or write one of {', '.join(KNOWN)}"


def _placed(drafter: Drafter, folder: Path) -> Drafter:
    if not drafter.licence_files:
        return drafter
    return drafter.model_copy(update={"licence_files": tuple(folder / file for file in drafter.licence_files)})


def _check_texts(catalogue: Catalogue, licences: Mapping[str, LicenceText]) -> Iterator[tuple[Place, str]]:
    """Files that are named and not there would be missed only when a drafter is published."""
    for name in licences:
        terms = terms_of(name)
        if terms is None:
            yield ("licences", name), f"no licence of this name is known here; they are {', '.join(KNOWN)}"
            continue
        for number, file in enumerate(catalogue.licences[terms.id]):
            if not file.is_file():
                yield ("licences", name, "files", number), f"there is no file {file}"
    for repo, drafter in catalogue.drafters.items():
        for number, file in enumerate(drafter.licence_files):
            if not file.is_file():
                yield ("drafters", repo, "licence_files", number), f"there is no file {file}"
