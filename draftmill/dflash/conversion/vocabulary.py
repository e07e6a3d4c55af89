"""Proof that a GGUF draft carries its target's vocabulary, and that a draft which has one of its own has the same."""

from pathlib import Path
from typing import Any

from draftmill.dflash.conversion.form import Form
from draftmill.dflash.package import File
from draftmill.digest import sha256_file
from draftmill.gguf.merged_folder import TOKENIZER_FILES
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.identity import Comparison, compare
from draftmill.tokenizers.sources import Source, as_gguf, read_source

TOKENIZER = "tokenizer.json"
SIDE = "tokenizer_config.json"


def prove_vocabulary(written: Path, target: Path | None, source: Path, form: Form) -> dict[str, Any]:
    """Compares what was written with the target, facet by facet, and the source's own vocabulary where it has one.
    Without a target it is the source's own that was to be written.

    Raises Refused dflash.vocabulary_differs with the first difference of each facet; what `read_source` raises.
    """
    of = read_source(target or source)
    proof = _identical(of, read_source(written), written.name)
    found = {"of": (target or source).name, "proof": proof.as_json()}
    if target is None:
        return found
    if form == Form.GGUF or (source / TOKENIZER).is_file():
        found["source"] = _identical(of, read_source(source), source.name).as_json()
    return found


def vocabulary_files(target: Path) -> tuple[File, ...]:
    """What of a target's folder a vocabulary is read from, with digests."""
    names = ("config.json", *TOKENIZER_FILES)
    return tuple(
        File(name, (target / name).stat().st_size, sha256_file(target / name))
        for name in names
        if (target / name).is_file()
    )


def _identical(target: Source, draft: Source, where: str) -> Comparison:
    comparison = compare(*as_gguf(target, draft))
    if comparison.differences:
        raise Refused(
            *(
                Refusal(
                    "dflash.vocabulary_differs",
                    f"{where}:{difference.facet}",
                    str(difference)[:200],
                    f"the {difference.facet} of {target.path.name}",
                    "The draft's ids are its target's, and these are of two vocabularies. Give the target that the "
                    "draft was trained for.",
                )
                for difference in comparison.differences
            )
        )
    return comparison
