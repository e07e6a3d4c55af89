"""Under which licences something is published, and the texts and notices that travel with it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftmill.licences.duties import Duty, duties, has_agreement, has_notice, refusals
from draftmill.licences.duties import Publication as Judged
from draftmill.licences.lineage import Ancestor
from draftmill.licences.terms import is_agreement, is_carried, terms_of
from draftmill.outcome import Refusal, Refused
from draftmill.store.manifest import Licence, Obligation
from draftmill.whole_file import write_whole
from flows.conversion_steps import Listing
from flows.order import Order

NOTICE = "NOTICE"


@dataclass(frozen=True)
class Terms:
    """Under which licence it is published, what binds beside it and because of whom, and what travels along."""

    licence: Licence
    lineage: tuple[Ancestor, ...]
    obligations: tuple[Obligation, ...]
    notices: tuple[str, ...]
    files: dict[str, Path]


def terms_of_order(
    order: Order,
    listing: Listing,
    lineage: tuple[Ancestor, ...],
    model: Path,
    models: Sequence[str],
    donor: tuple[Listing, Path] | None = None,
) -> Terms:
    """Raises Refused when the licences' terms cannot be met: before the long work, since nothing could be published.

    model: the downloaded folder; models: names of the GGUF files to come; donor: whose tokenizer it has, downloaded. A
    licence's text comes from the repository, the operator or the donor; its notice is written where the licence
    prescribes it word for word.
    """
    stated, identifier = listing["licence"], order.licence or listing["licence"]
    if order.licence and stated and order.licence.lower() != stated.lower() and not order.licence_statement:
        raise Refused(_contradiction(order.licence, stated))
    names = (listing["repo"], *listing["base_models"], donor[0]["repo"] if donor else None)
    judged = Judged(identifier, order.licence_statement, tuple(name for name in names if name), lineage)
    binding = duties(judged)
    files = {f["path"]: model / f["path"] for f in listing["files"] if is_carried(f["path"])}
    files |= {path.name: path for path in order.licence_files}
    ours = dict(files)
    for duty in binding:
        files = dict(_texts(order, duty, donor)) | files
    files |= _written_notice(order.work, binding, files)
    notices = tuple(dict.fromkeys(duty.terms.display for duty in binding if duty.terms.display))
    source_files = [f["path"] for f in listing["files"]]
    if findings := refusals(judged, source_files=source_files, files=files, models=models, notices=notices):
        raise Refused(*findings)
    known = terms_of(identifier)
    text = _own_text(binding, files, ours)
    licence = Licence(id=known.id if known else identifier, text=text, statement=order.licence_statement)
    return Terms(licence, lineage, tuple(_met(duty, files) for duty in binding), notices, files)


def _own_text(binding: Sequence[Duty], files: Mapping[str, Path], ours: Mapping[str, Path]) -> str | None:
    """Where the text of the licence that it is published under is: `ours` are files of the source and the operator.
    A text that is there because an ancestor's licence asks for it is none of the source's own licence."""
    for duty in binding:
        if "itself" in duty.because_of and (found := has_agreement(duty.terms, files)):
            return found
    inherited = {has_agreement(duty.terms, files) for duty in binding}
    return next((path for path in sorted(ours) if is_agreement(path) and path not in inherited), None)


def _texts(order: Order, duty: Duty, donor: tuple[Listing, Path] | None) -> Iterator[tuple[str, Path]]:
    """The operator's files for this licence; else the donor's own, where they are of it."""
    id = duty.terms.id
    given = order.licence_texts.get(id, ())
    if not given and donor and donor[0]["repo"] in duty.because_of:
        carried = {f["path"]: donor[1] / f["path"] for f in donor[0]["files"] if is_carried(f["path"])}
        given = tuple(carried.values()) if has_agreement(duty.terms, carried) else ()
    for path in given:
        stem = path.name.partition(".")[0] if is_carried(path.name) else "LICENSE"
        yield f"{stem}-{id}{'.md' if path.suffix == '.md' else '.txt'}", path


def _written_notice(work: Path, binding: Sequence[Duty], files: Mapping[str, Path]) -> dict[str, Path]:
    missing = [duty.terms for duty in binding if duty.terms.notice and not has_notice(duty.terms, files)]
    if not missing:
        return {}
    text = "".join(f"{terms.notice}\n" for terms in missing)
    name = NOTICE if NOTICE not in files else "-".join([NOTICE, *(terms.id for terms in missing)])
    place = work / "notices" / hashlib.sha256(text.encode()).hexdigest()[:16] / name
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, text)
    return {name: place}


def _met(duty: Duty, files: Mapping[str, Path]) -> Obligation:
    terms = duty.terms
    return Obligation(
        licence=terms.id,
        because_of=duty.because_of,
        agreement=has_agreement(terms, files) if terms.agreement else None,
        notice=has_notice(terms, files) if terms.notice_begins else None,
        display=terms.display or None,
        name_begins=terms.name_prefix or None,
    )


def _contradiction(given: str, stated: str) -> Refusal:
    return Refusal(
        "publish.licence_contradicts",
        "--licence",
        given,
        stated,
        f"The repository names the licence {stated}. Leave --licence away, or say with --licence-statement by which "
        "right you publish it under another.",
    )
