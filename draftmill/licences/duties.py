"""What has to travel with a publication, by its own licence and by those of its ancestors; and what of it is missing.

A drafter that was made from a model, or trained for one, inherits the terms of that model's licence. Fails closed: a
licence that is missing or not known here, and an ancestor of which nobody says any, need an explicit statement of
whoever publishes.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from draftmill.licences.lineage import Ancestor
from draftmill.licences.terms import KNOWN, Terms, is_agreement, is_carried, is_notice, mentions_llama, terms_of
from draftmill.outcome import Refusal

LARGEST_TEXT = 1 << 20
_SHOWN = 80
TEXTS = "under `licences` in the catalogue, or with --licence-text"


@dataclass(frozen=True)
class Duty:
    """A licence whose terms bind, and because of whom: "itself", or names of ancestors."""

    terms: Terms
    because_of: tuple[str, ...]


@dataclass(frozen=True)
class Publication:
    """What is to be judged. licence: the source's own; statement: by which right it is published, in the publisher's
    words; names: of the source and its parents; lineage: its ancestors."""

    licence: str | None
    statement: str | None
    names: tuple[str, ...]
    lineage: tuple[Ancestor, ...]


def duties(given: Publication) -> tuple[Duty, ...]:
    """Of licences that are known. A statement says by which right it is published, so it stands for what is inherited;
    it does not stand for the licence that the source names."""
    because: dict[str, list[str]] = defaultdict(list)
    if own := terms_of(given.licence):
        because[own.id].append("itself")
    if not given.statement:
        for ancestor in given.lineage:
            if terms := terms_of(ancestor.licence):
                because[terms.id].append(ancestor.name)
    found = ((terms_of(id), names) for id, names in because.items())
    return tuple(Duty(terms, tuple(names)) for terms, names in found if terms and terms.binds)


def refusals(
    given: Publication,
    *,
    source_files: Iterable[str],
    files: Mapping[str, Path],
    models: Iterable[str],
    notices: Iterable[str],
) -> list[Refusal]:
    """What keeps it from being published lawfully, as far as can be seen, each thing with how to give it.

    source_files: paths in the source repository; files: what is published, by path; models: those of them that are
    models; notices: lines that the manifest shows.
    """
    found = [_not_carried(path) for path in sorted(source_files) if is_carried(path) and path not in files]
    binding = duties(given)
    if not given.statement:
        if terms_of(given.licence) is None:
            found.append(_missing(given.licence))
        found += [_unknown(ancestor) for ancestor in given.lineage if terms_of(ancestor.licence) is None]
        named = mentions_llama([*given.names, *(ancestor.name for ancestor in given.lineage)])
        unexplained = any(terms_of(ancestor.licence) is None for ancestor in given.lineage)
        if named and not unexplained and not any(duty.terms.id.startswith("llama") for duty in binding):
            found.append(_llama(given.licence, named))
    models, notices = list(models), list(notices)
    for duty in binding:
        found += _unmet(duty, files, models, notices)
    return found


def has_agreement(terms: Terms, files: Mapping[str, Path]) -> str | None:
    """The path of the licence's text among the files."""
    texts = {path: file for path, file in files.items() if is_agreement(path)}
    return next((path for path in sorted(texts) if (text := _text(texts[path])) and _fold(terms.title) in text), None)


def has_notice(terms: Terms, files: Mapping[str, Path]) -> str | None:
    """The path of the notice that the licence asks for."""
    texts = {path: file for path, file in files.items() if is_notice(path)}
    return next((path for path in sorted(texts) if _fold(terms.notice_begins) in _text(texts[path])), None)


def _unmet(duty: Duty, files: Mapping[str, Path], models: Sequence[str], notices: Sequence[str]) -> list[Refusal]:
    terms, found = duty.terms, []
    of = f"The {terms.id} licence ({_whose(duty)})"
    if terms.agreement and not has_agreement(terms, files):
        title = f' with the words "{terms.title}"' if terms.title else ""
        read = _read(files, is_agreement, terms.title)
        found.append(
            Refusal(
                "store.agreement_missing",
                terms.id,
                sorted(files),
                f"a LICENSE file{title}",
                f"{of} asks that its text travels with the model; take it from its publisher and give it {TEXTS} "
                f"{terms.id}=FILE.{read}",
            )
        )
    if terms.notice_begins and not has_notice(terms, files):
        found.append(
            Refusal(
                "store.notice_missing",
                terms.id,
                sorted(path for path in files if is_notice(path)),
                f'a NOTICE file that says "{terms.notice_begins} ..."',
                f"{of} asks for its notice; give the NOTICE file with --licence-file, or {TEXTS} {terms.id}=FILE."
                f"{_read(files, is_notice, terms.notice_begins)}",
            )
        )
    if terms.display and not any(terms.display in notice for notice in notices):
        found.append(
            Refusal(
                "store.display_missing",
                terms.id,
                list(notices),
                terms.display,
                f'{of} asks that "{terms.display}" is shown; add it to the manifest\'s notices.',
            )
        )
    prefix = terms.name_prefix.replace(" ", "[ -]")
    found += [
        Refusal(
            "store.name_rule",
            path,
            PurePosixPath(path).name,
            f"a name that begins with {terms.name_prefix}",
            f"{of} rules the name; publish it under one, by publish_as in the catalogue, or with --name.",
        )
        for path in models
        if prefix and not re.match(prefix, PurePosixPath(path).name)
    ]
    return found


def _whose(duty: Duty) -> str:
    inherited = [name for name in duty.because_of if name != "itself"]
    return "its own" if not inherited else f"inherited from {', '.join(inherited)}"


def _read(files: Mapping[str, Path], is_asked_for: Callable[[str], bool], words: str) -> str:
    return "".join(f" {_of_another(path, files[path], words)}" for path in sorted(files) if is_asked_for(path))


def _of_another(name: str, path: Path, words: str) -> str:
    """Why a text that is there is not the one that is asked for."""
    with path.open("rb") as file:
        lines = file.read(LARGEST_TEXT).decode("utf-8", "replace").split("\n")
    first = next((" ".join(line.split()) for line in lines if line.strip()), None)
    if first is None:
        return f"{name} was read, and it is empty."
    return f'{name} was read, and it does not have the words "{words}": it begins "{first[:_SHOWN]}".'


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return _fold(file.read(LARGEST_TEXT).decode("utf-8", "replace"))


def _missing(licence: str | None) -> Refusal:
    return Refusal(
        "store.licence_missing",
        "licence",
        licence,
        f"one of {', '.join(KNOWN)}",
        "The model names no licence that is known here, so it may be that nobody is allowed to publish it. Read its "
        "card, then say by which right you do with --licence-statement.",
    )


def _unknown(ancestor: Ancestor) -> Refusal:
    said = (
        f"names the licence {ancestor.licence} ({ancestor.known_from}), whose terms are not known here"
        if ancestor.licence
        else "names no licence that could be found"
    )
    return Refusal(
        "store.lineage_unknown",
        ancestor.name,
        ancestor.licence,
        f"one of {', '.join(KNOWN)}",
        f"It inherits the terms of {ancestor.name} ({ancestor.relation}, as {ancestor.said_by} says), which {said}. "
        "Read what it says, then say by which right you publish with --licence-statement.",
    )


def _llama(licence: str | None, named: list[str]) -> Refusal:
    return Refusal(
        "store.licence_lineage",
        ", ".join(named),
        licence,
        "a Llama licence",
        f"It is derived from Llama by its name, and that licence is inherited, but it names only {licence}. Name the "
        "model that it was made from, as derived_from in the catalogue or with --derived-from, or say with "
        "--licence-statement why the licence does not apply.",
    )


def _not_carried(path: str) -> Refusal:
    return Refusal(
        "store.licence_file_missing",
        path,
        None,
        "carried beside the model",
        "The source repository has this file, and its licence asks that it travels along; publish it too.",
    )
