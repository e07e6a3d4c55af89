"""Licences by the names that the Hugging Face Hub and SPDX give them, and what each asks of whoever publishes.

Sources: SPDX licence list; Apache-2.0 section 4; Llama 2 section 1.b; Llama 3, 3.1, 3.2, 3.3 and 4 section 1.b; Gemma
terms section 3.1; Qwen and Qwen research licence (Qwen2.5) sections 3.c and 4.b.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

CARRIED = re.compile(r"(licen[cs]e|notice|copying|use_policy)([._-].*)?", re.IGNORECASE)
AGREEMENT = re.compile(r"(licen[cs]e|copying)([._-].*)?", re.IGNORECASE)
NOTICE = re.compile(r"notice([._-].*)?", re.IGNORECASE)
_LLAMA = re.compile(r"(?<![a-z])llama-?\d*(?![a-z])|meta-llama/|codellama|vicuna", re.IGNORECASE)


@dataclass(frozen=True)
class Terms:
    """A licence: `id` is SPDX's name, or the hub's where `spdx` is False.

    agreement: its text must be among the files; title: words that this text has, by which it is told from another one;
    notice_begins: words that a NOTICE file must hold; notice: the whole sentence where the licence prescribes it word
    for word, "" where it has to come from the source; display: words that must be among the manifest's notices;
    name_prefix: how the name of every published model must begin.
    """

    id: str
    spdx: bool = True
    agreement: bool = False
    title: str = ""
    notice_begins: str = ""
    notice: str = ""
    display: str = ""
    name_prefix: str = ""

    @property
    def binds(self) -> bool:
        """Whether it asks for more than the texts that a source carries."""
        return bool(self.agreement or self.notice_begins or self.display or self.name_prefix)


def _llama(version: str, display: str, name_prefix: str, model: str = "", community: str = "") -> Terms:
    model = model or f"Llama {version}"
    return Terms(
        f"llama{version}",
        spdx=False,
        agreement=True,
        title=f"Llama {version} Community License Agreement",
        notice_begins=f"Llama {version} is licensed under the",
        notice=f"{model} is licensed under the {community or model} Community License, "
        "Copyright \N{COPYRIGHT SIGN} Meta Platforms, Inc. All Rights Reserved.",
        display=display,
        name_prefix=name_prefix,
    )


def _qwen(id: str, title: str) -> Terms:
    """The year and the owner in its notice differ from release to release, so it is not made up here."""
    return Terms(
        id,
        spdx=False,
        agreement=True,
        title=title,
        notice_begins=f"Qwen is licensed under the {title}",
        display="Built with Qwen",
    )


_SPDX = """
    Apache-2.0 MIT BSD-2-Clause BSD-3-Clause BSD-3-Clause-Clear ISC Zlib BSL-1.0 Unlicense CC0-1.0 CC-BY-2.0 CC-BY-3.0
    CC-BY-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC-BY-NC-2.0 CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-NC-SA-4.0 MPL-2.0 EPL-2.0 EUPL-1.2
    MS-PL ECL-2.0 AFL-3.0 Artistic-2.0 WTFPL PDDL-1.0
"""
_GEMMA = "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"
_KNOWN = {
    **{name.lower(): Terms(name) for name in _SPDX.split()},
    **{name: Terms("OpenMDW-1.1", spdx=False, agreement=True) for name in ("openmdw", "openmdw-1.1")},
    "llama2": _llama("2", "", "", community="LLAMA 2"),
    "llama3": _llama("3", "Built with Meta Llama 3", "Llama 3", model="Meta Llama 3"),
    **{f"llama{version}": _llama(version, "Built with Llama", "Llama") for version in ("3.1", "3.2", "3.3", "4")},
    "gemma": Terms(
        "gemma",
        spdx=False,
        agreement=True,
        title="Gemma Terms of Use",
        notice_begins="Gemma is provided under and subject to the Gemma Terms",
        notice=_GEMMA,
    ),
    "qwen": _qwen("qwen", "Qwen License Agreement"),
    "qwen-research": _qwen("qwen-research", "Qwen Research License Agreement"),
}
KNOWN = tuple(sorted(_KNOWN))


def terms_of(licence: str | None) -> Terms | None:
    """The terms of a licence by the hub's or SPDX's name in any case, or None when they are not known."""
    return _KNOWN.get((licence or "").strip().lower())


def is_carried(path: str) -> bool:
    """Whether a repository's file of this name (LICENSE, NOTICE, USE_POLICY.md) travels with what is made of it."""
    return CARRIED.fullmatch(PurePosixPath(path).name) is not None


def is_agreement(path: str) -> bool:
    """Whether a file of this name holds a licence's text, as far as the name tells."""
    return AGREEMENT.fullmatch(PurePosixPath(path).name) is not None


def is_notice(path: str) -> bool:
    return NOTICE.fullmatch(PurePosixPath(path).name) is not None


def mentions_llama(names: Iterable[str]) -> list[str]:
    """The repository names with the word Llama ("PARD-Llama-3.2-1B", not "TinyLlama"), or with Llama's kin."""
    return [name for name in names if _LLAMA.search(name)]
