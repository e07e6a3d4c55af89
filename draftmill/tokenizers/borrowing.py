"""Which tokenizer goes with a model: its own, or a donor's, and the proof that it fits.

A repository without tokenizer files (amd/PARD2-*) is told apart before any converter sees it: the converter's own
message depends on the version of transformers and names a file that never existed. docs/borrowing.md tells the rules.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftmill.digest import sha256_file
from draftmill.intake.bounded_json import read_object
from draftmill.intake.safetensors_header import read_header
from draftmill.outcome import Refusal, Refused
from draftmill.pard.capabilities import WARP_FILE, capabilities
from draftmill.pard.config import detect
from draftmill.tokenizers.checks import (
    Evidence,
    check_family,
    check_pard_token,
    check_roles,
    check_rows,
    check_sides,
)
from draftmill.tokenizers.families import FAMILIES, Declared, Family, declared
from draftmill.tokenizers.huggingface import MAX_SIDE_BYTES, MAX_TOKENIZER_BYTES, read_tokenizer
from draftmill.tokenizers.identity import Level, compare, summarise
from draftmill.tokenizers.vocabulary import Vocabulary

FORMAT = 1
"""Version of proof.json."""

CARRIED = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
)
"""Files that are used, when they are there."""

_SIDES = ("vocab.json", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json")
_OTHERS = ("vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "vocab.txt", "tekken.json")
_OWN = {*CARRIED[:4], *_OTHERS}
_EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight")
_HEADS = ("lm_head.weight",)


@dataclass(frozen=True)
class Borrowed:
    """files: name -> where it lies, exactly the tokenizer files to use. proof: JSON, the content of proof.json."""

    files: Mapping[str, Path]
    proof: dict[str, Any]


def borrow(
    model: Path,
    donor: Path | None = None,
    donor_source: str | None = None,
    *,
    base_models: Iterable[str] = (),
    families: Iterable[Family] = FAMILIES,
) -> Borrowed:
    """Settles whose tokenizer the model folder is converted with, and proves that it fits.

    donor: folder with the donor's tokenizer files, from `donor_source` ("owner/name@commit"). base_models: what the
    repository's card says it was made from. Raises Refused with every finding: tokenizer.weights_only and
    tokenizer.no_tokenizer_json (nothing to use), tokenizer.config, tokenizer.embedding_missing, the checks of
    `draftmill.tokenizers.checks`, tokenizer.library_refuses and tokenizer.id_moved (the tokenizers library disagrees),
    tokenizer.donor_differs; pard.* for a broken PARD declaration.
    """
    config = _config(model)
    family = declared(config, base_models, families)
    own = (model / "tokenizer.json").is_file()
    if not own and donor is None:
        raise Refused(_nothing_to_use(model, config, family))
    folder = model if own or donor is None else donor
    if not (folder / "tokenizer.json").is_file():
        raise Refused(
            Refusal(
                "tokenizer.no_tokenizer_json",
                "donor",
                sorted(path.name for path in folder.iterdir())[:20],
                "tokenizer.json",
                f"The donor {donor_source or ''} has no tokenizer.json; name a repository that has one.",
            )
        )
    vocabulary = read_tokenizer(folder)
    evidence = Evidence()
    _check_library(evidence, folder / "tokenizer.json", vocabulary)
    check_sides(evidence, _documents(folder), vocabulary, owner="the repository" if own else "the donor")
    if not own:
        check_sides(evidence, _documents(model), vocabulary, owner="the draft")
    embedding = _rows(model, _EMBEDDINGS)
    if embedding is None:
        evidence.failed(
            "embedding_missing",
            "*.safetensors",
            None,
            list(_EMBEDDINGS),
            "No safetensors file here holds the embedding, so no tokenizer can be shown to fit.",
        )
    else:
        check_rows(evidence, config["vocab_size"], embedding, _rows(model, _HEADS), vocabulary)
        check_pard_token(evidence, config, embedding, vocabulary)
    check_roles(evidence, config, vocabulary)
    known = check_family(evidence, family, vocabulary, borrowed=not own)
    compared = _compare_donor(evidence, vocabulary, donor, donor_source) if own and donor is not None else None
    unused = [name for name in _OTHERS if (folder / name).is_file()]
    if unused:
        evidence.remarks.append(f"not used, since tokenizer.json says it all: {', '.join(unused)}")
    drafter = _drafter(evidence, config, model)
    if evidence.refusals:
        raise Refused(*evidence.refusals)

    files = {name: folder / name for name in CARRIED if (folder / name).is_file()}
    assert embedding is not None  # noqa: S101 - a missing one was refused
    proof = {
        "format": FORMAT,
        "origin": "own" if own else "donor",
        "donor": _source(donor_source) if donor is not None else None,
        "files": {name: sha256_file(path) for name, path in files.items()},
        "vocabulary": {
            **summarise(vocabulary),
            "embedding_rows": embedding,
            "padding_rows": embedding - vocabulary.highest - 1,
        },
        "family": known,
        "compared_with_donor": compared,
        "checks": evidence.checks,
        "remarks": evidence.remarks,
        "drafter": drafter,
    }
    return Borrowed(files, proof)


def _config(model: Path) -> dict[str, Any]:
    path = model / "config.json"
    config = read_object(path, path.name, MAX_SIDE_BYTES) if path.is_file() else {}
    rows = config.get("vocab_size")
    if type(rows) is int and rows > 0:
        return config
    raise Refused(
        Refusal(
            "tokenizer.config",
            "config.json:vocab_size",
            rows,
            "a positive integer",
            "Without vocab_size no tokenizer can be shown to fit; take config.json from the model's repository.",
        )
    )


def _nothing_to_use(model: Path, config: Mapping[str, Any], family: Declared) -> Refusal:
    present = sorted(path.name for path in model.iterdir() if path.name in _OWN)
    base = config.get("_name_or_path")
    donors = [base] if isinstance(base, str) and base.count("/") == 1 else [f.donor for f in family.families]
    advice = (
        f"Its config points to {donors[0]}: add --tokenizer-from {donors[0]}."
        if donors
        else "Name the repository it was made from: --tokenizer-from OWNER/NAME."
    )
    if present:
        return Refusal(
            "tokenizer.no_tokenizer_json",
            "model",
            present,
            "tokenizer.json",
            f"The repository has tokenizer files, but no tokenizer.json. {advice}",
        )
    return Refusal(
        "tokenizer.weights_only",
        "model",
        [],
        "tokenizer.json, or a donor",
        f"The repository holds weights only, no tokenizer. {advice}",
    )


def _documents(folder: Path) -> dict[str, dict[str, Any]]:
    return {name: read_object(folder / name, name, MAX_TOKENIZER_BYTES) for name in _SIDES if (folder / name).is_file()}


def _rows(model: Path, names: Iterable[str]) -> int | None:
    """Rows of the first of these tensors that a safetensors file of the folder has."""
    for path in sorted(model.glob("*.safetensors")):
        tensors = read_header(path).tensors
        found = next((tensors[name] for name in names if name in tensors), None)
        if found is not None:
            return found.shape[0] if found.shape else 0
    return None


def _check_library(evidence: Evidence, path: Path, vocabulary: Vocabulary) -> None:
    """The tokenizers library, an independent reader, sees the same ids: it renumbers added tokens that leave a gap."""
    from tokenizers import Tokenizer

    try:
        seen = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    except Exception as error:
        evidence.failed(
            "library_refuses",
            path.name,
            str(error)[:200],
            "loads with the tokenizers library",
            "The tokenizers library cannot load this tokenizer.json; take a fresh copy from its repository.",
        )
        return
    moved = sorted((text, token) for text, token in vocabulary.id_of.items() if seen.get(text) != token)
    evidence.judge(
        "id_moved",
        path.name,
        [moved[0][0], seen.get(moved[0][0])] if moved else len(seen),
        list(moved[0]) if moved else len(vocabulary.texts),
        f"{len(moved)} tokens have another id once loaded than the file says; the file was edited by hand.",
        ok=not moved,
    )


def _compare_donor(evidence: Evidence, vocabulary: Vocabulary, donor: Path, donor_source: str | None) -> dict[str, Any]:
    """A repository with its own tokenizer needs no donor; one that is named all the same has to be equal."""
    comparison = compare(vocabulary, read_tokenizer(donor))
    named = donor_source or "the donor"
    if comparison.level in (Level.FILE, Level.WHOLE, Level.STATED):
        evidence.passed("donor", str(comparison.level), "equal")
        evidence.remarks.append(f"the repository has its own tokenizer, equal to that of {named}: its own is used")
    else:
        first = comparison.differences[0]
        evidence.failed(
            "donor_differs",
            f"{first.facet} at {first.where}",
            first.left,
            first.right,
            f"The repository has its own tokenizer and {named} has another one ({first}); leave --tokenizer-from out.",
        )
    return comparison.as_json()


def _drafter(evidence: Evidence, config: Mapping[str, Any], model: Path) -> dict[str, Any]:
    try:
        pard = detect(config)
    except Refused as refused:
        evidence.refusals += refused.refusals
        return {}
    if pard is None and "pard_token" in config:
        evidence.remarks.append(
            "config.json has a pard_token but no spd_type: not declared as PARD, so not called PARD"
        )
    return capabilities(pard, warp_carried=(model / WARP_FILE).is_file())


def _source(donor_source: str | None) -> dict[str, str | None]:
    repository, _, revision = (donor_source or "").partition("@")
    return {"repository": repository or None, "revision": revision or None}
