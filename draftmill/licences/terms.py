"""Licences by the names that the Hugging Face Hub and SPDX give them, and whether a publication meets their terms.

Fails closed: a licence that is missing or not known here needs an explicit statement of whoever publishes.
Sources: SPDX licence list; Apache-2.0 section 4; Llama 2 section 1.b; Llama 3 and 3.1 to 3.3 section 1.b; Gemma terms
section 3.1.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from draftmill.outcome import Refusal

CARRIED = re.compile(r"(licen[cs]e|notice|copying|use_policy)([._-].*)?", re.IGNORECASE)
_AGREEMENT = re.compile(r"(licen[cs]e|copying)([._-].*)?", re.IGNORECASE)
_NOTICE = re.compile(r"notice([._-].*)?", re.IGNORECASE)
_LLAMA = re.compile(r"(?<![a-z])llama-?\d*(?![a-z])|meta-llama/|codellama|vicuna", re.IGNORECASE)
NOTICE_BYTES = 1 << 20


@dataclass(frozen=True)
class Terms:
    """A licence: `id` is SPDX's name, or the hub's where `spdx` is False.

    agreement: its text must be among the files; notice: words that a NOTICE file must hold; display: words that must be
    among the manifest's notices; name_prefix: how the name of every published model must begin.
    """

    id: str
    spdx: bool = True
    agreement: bool = False
    notice: str = ""
    display: str = ""
    name_prefix: str = ""


def _llama(version: str, display: str, name_prefix: str) -> Terms:
    return Terms(
        f"llama{version}",
        spdx=False,
        agreement=True,
        notice=f"Llama {version} is licensed under the",
        display=display,
        name_prefix=name_prefix,
    )


_SPDX = """
    Apache-2.0 MIT BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear ISC Zlib BSL-1.0 Unlicense CC0-1.0 CC-BY-2.0 CC-BY-3.0
    CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-NC-SA-4.0 MPL-2.0 EPL-2.0 EUPL-1.2
    MS-PL ECL-2.0 AFL-3.0 Artistic-2.0 WTFPL PDDL-1.0
"""
_KNOWN = {
    **{name.lower(): Terms(name) for name in _SPDX.split()},
    **{name: Terms("OpenMDW-1.1", spdx=False, agreement=True) for name in ("openmdw", "openmdw-1.1")},
    "llama2": _llama("2", "", ""),
    "llama3": _llama("3", "Built with Meta Llama 3", "Llama 3"),
    **{f"llama{version}": _llama(version, "Built with Llama", "Llama") for version in ("3.1", "3.2", "3.3")},
    "gemma": Terms(
        "gemma", spdx=False, agreement=True, notice="Gemma is provided under and subject to the Gemma Terms"
    ),
}


def terms_of(licence: str | None) -> Terms | None:
    """The terms of a licence by the hub's or SPDX's name in any case, or None when they are not known."""
    return _KNOWN.get((licence or "").strip().lower())


def is_carried(path: str) -> bool:
    """Whether a repository's file of this name (LICENSE, NOTICE, USE_POLICY.md) travels with what is made of it."""
    return CARRIED.fullmatch(PurePosixPath(path).name) is not None


def mentions_llama(names: Iterable[str]) -> list[str]:
    """The repository names with the word Llama ("PARD-Llama-3.2-1B", not "TinyLlama"), or with Llama's kin."""
    return [name for name in names if _LLAMA.search(name)]


def refusals(
    *,
    licence: str | None,
    statement: str | None,
    lineage: Iterable[str],
    source_files: Iterable[str],
    files: Mapping[str, Path],
    models: Iterable[str],
    notices: Iterable[str],
) -> list[Refusal]:
    """What keeps a publication from being lawful, as far as can be seen; empty when nothing does.

    licence: the source's own; statement: by which right it is published, in the publisher's words; lineage: names of
    the source, its base models and its target; source_files: paths in the source repository; files: what is published,
    by path; models: those of them that are models; notices: lines that the manifest shows.
    """
    notices = list(notices)
    found = [_not_carried(path) for path in sorted(source_files) if is_carried(path) and path not in files]
    terms = terms_of(licence)
    if terms is None:
        if not statement:
            found.append(_missing(licence))
        return found
    if not terms.id.startswith("llama") and not statement and (parents := mentions_llama(lineage)):
        found.append(_lineage(terms, parents))
    return found + _unmet(terms, files, list(models), notices)


def _unmet(terms: Terms, files: Mapping[str, Path], models: list[str], notices: list[str]) -> list[Refusal]:
    names = {path: PurePosixPath(path).name for path in files}
    found = []
    if terms.agreement and not any(_AGREEMENT.fullmatch(name) for name in names.values()):
        found.append(
            Refusal(
                "store.agreement_missing",
                terms.id,
                sorted(files),
                "a LICENSE file",
                f"The {terms.id} licence asks that its text travels with the model; give it with --licence-file.",
            )
        )
    if terms.notice and not any(
        terms.notice.casefold() in _text(files[path]) for path, name in names.items() if _NOTICE.fullmatch(name)
    ):
        found.append(
            Refusal(
                "store.notice_missing",
                terms.id,
                sorted(path for path, name in names.items() if _NOTICE.fullmatch(name)),
                f'a NOTICE file that says "{terms.notice} ..."',
                f"The {terms.id} licence asks for its notice; give the NOTICE file with --licence-file.",
            )
        )
    if terms.display and not any(terms.display in notice for notice in notices):
        found.append(
            Refusal(
                "store.display_missing",
                terms.id,
                notices,
                terms.display,
                f'The {terms.id} licence asks that "{terms.display}" is shown; add it to the manifest\'s notices.',
            )
        )
    prefix = terms.name_prefix.replace(" ", "[ -]")
    found += [
        Refusal(
            "store.name_rule",
            path,
            PurePosixPath(path).name,
            f"a name that begins with {terms.name_prefix}",
            f"The {terms.id} licence rules the name; publish it under one, by --name.",
        )
        for path in models
        if prefix and not re.match(prefix, PurePosixPath(path).name)
    ]
    return found


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return " ".join(file.read(NOTICE_BYTES).decode("utf-8", "replace").casefold().split())


def _missing(licence: str | None) -> Refusal:
    return Refusal(
        "store.licence_missing",
        "licence",
        licence,
        f"one of {', '.join(sorted(_KNOWN))}",
        "The model names no licence that is known here, so it may be that nobody is allowed to publish it. Read its "
        "card, then say by which right you do with --licence-statement.",
    )


def _lineage(terms: Terms, parents: list[str]) -> Refusal:
    return Refusal(
        "store.licence_lineage",
        ", ".join(parents),
        terms.id,
        "a Llama licence",
        f"It is derived from Llama, whose licence is inherited, but names only {terms.id}. Give the Llama licence with "
        "--licence, or say with --licence-statement why it does not apply.",
    )


def _not_carried(path: str) -> Refusal:
    return Refusal(
        "store.licence_file_missing",
        path,
        None,
        "carried beside the model",
        "The source repository has this file, and its licence asks that it travels along; publish it too.",
    )
