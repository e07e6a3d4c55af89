"""config/catalogue.yaml as values: read whole, every wrong line told."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from draftmill.catalogue.schema import NOTHING_KNOWN, Drafter, Family, Repo, Target
from draftmill.digest import sha256_json
from draftmill.outcome import BadConfiguration
from draftmill.settings_file import Place, read_document

CODE = "catalogue.file"
EXAMPLE = "config/catalogue.yaml"
SECTIONS: dict[str, Any] = {"families": Family, "drafters": Drafter, "targets": Target}


@dataclass(frozen=True)
class Catalogue:
    """families: name -> rule; drafters and targets: owner/repo -> what is known of it. path: the file, which is read
    again when a line of it has to be named: of ten thousand rows the lines alone take most of the memory."""

    families: Mapping[str, Family]
    drafters: Mapping[str, Drafter]
    targets: Mapping[str, Target]
    path: Path

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
    catalogue = Catalogue(read["families"], read["drafters"], read["targets"], path)
    if "families" not in settings:
        wrong.append(((), "has no section families, so nothing could be told apart"))
    wrong += _check_names(catalogue)
    if wrong:
        raise catalogue.wrong(wrong)
    return catalogue


_REPO = TypeAdapter(Repo)


def _read(section: str, model: Any, given: dict[str, Any], wrong: list[tuple[Place, str]]) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        try:
            if section != "families":
                _REPO.validate_python(name)
            # `amd/PARD-Qwen3-0.6B:` with nothing behind it is a row of which nothing more is known.
            yield name, model.model_validate(value or {})
        except ValidationError as error:
            problems = [problem for problem in error.errors() if not _follows(problem, error)]
            wrong += [((section, name, *problem["loc"]), _words(problem)) for problem in problems]


_WORDS = {"missing": "is missing", "extra_forbidden": "is no key here", "tuple_type": "must be a list"}


def _follows(problem: Any, error: ValidationError) -> bool:
    """A list that is too short because its items are wrong: those are told."""
    at = problem["loc"]
    return problem["type"] == "too_short" and any(
        other["loc"][: len(at)] == at and other["loc"] != at for other in error.errors()
    )


def _words(problem: Any) -> str:
    """In the words of the file's author, where pydantic's own speak of Python."""
    words: str = _WORDS.get(problem["type"], problem["msg"])
    return words.removeprefix("Value error, ")


def _check_names(catalogue: Catalogue) -> Iterator[tuple[Place, str]]:
    for repo, drafter in catalogue.drafters.items():
        if drafter.family and drafter.family not in catalogue.families:
            yield ("drafters", repo, "family"), f"there is no family {drafter.family}"
