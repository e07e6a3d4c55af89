"""`draftmill show`: everything known about one drafter, and what proves it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from draftmill.cli.ending import ending, print_json
from draftmill.cli.retrieval import (
    COLOURS,
    AsJson,
    Credentials,
    Fresh,
    Ref,
    Store,
    open_catalogue,
    remark,
)
from draftmill.cli.telling import plain, printer
from draftmill.configuration import DEFAULT_STORE
from draftmill.store.manifest import INHERITS
from draftmill.store.notices import ancestor_line, obligation_line

if TYPE_CHECKING:
    from draftmill.store.catalogue import Shown
    from draftmill.store.index import Measurement, Pairing, Reason
    from draftmill.store.manifest import Manifest, Source


def show(
    ref: Ref,
    store: Store = DEFAULT_STORE,
    credentials_file: Credentials = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Show all that is known about a drafter: origin, licence, files, proofs, measurements, history.

    With --json the evidence is printed whole.
    """
    with ending(as_json):
        catalogue = open_catalogue(store, credentials_file)
        try:
            shown = catalogue.show(ref, fresh=fresh)
        finally:
            remark(catalogue.problems)
        if as_json:
            print_json(
                {
                    "row": shown.row.model_dump(mode="json"),
                    "manifest": shown.manifest.model_dump(mode="json") if shown.manifest else None,
                    "where": shown.where,
                    "signers": list(shown.signers),
                    "evidence": shown.evidence,
                    "history": [row.model_dump(mode="json") for row in shown.history],
                }
            )
        else:
            _draw(shown, printer())


def _draw(shown: "Shown", console: Console) -> None:
    row = shown.row
    console.print(f"[bold]{plain(row.entry)}[/]  [{COLOURS[row.verdict]}]{row.verdict}[/]")
    for name, value in _facts(shown):
        if value:
            console.print(f"  {name:<10} {plain(value)}")
    if shown.manifest:
        console.print(_files(shown.manifest))
    for line in _evidence(shown.evidence):
        console.print(f"  {plain(line)}")
    for measurement in row.measurements:
        _draw_measurement(measurement, console)
    if not row.measurements and row.quants:
        console.print("  not measured yet: `draftmill measure speed --publish`")
    for other in shown.history:
        reason = f", {other.reason.code}" if other.reason else ""
        console.print(
            f"  earlier    {plain(f'{other.version or other.route}: {other.verdict}{reason}')}, {_day(other)}"
        )


def _facts(shown: "Shown") -> Iterator[tuple[str, str]]:
    row, manifest = shown.row, shown.manifest
    yield "kind", ", ".join(filter(None, [row.kind, row.family, row.size, f"route {row.route}"]))
    if row.reason:
        told = any((each.code, each.sentence) == (row.reason.code, row.reason.sentence) for each in row.findings)
        yield from _reasons(row.findings if told else (row.reason, *row.findings))
        yield "more", f"{row.more_findings} others" if row.more_findings else ""
    yield "targets", ", ".join(row.targets)
    yield from (("pair", _pair(each)) for each in row.pairs)
    yield "licence", row.licence or "none named"
    if manifest:
        yield "by right", manifest.licence.statement or ""
        yield from (("notice", notice) for notice in manifest.notices)
        yield from (("inherits", obligation_line(each)) for each in manifest.obligations)
        yield "made from", _source(manifest.source)
        yield from (("comes from", ancestor_line(each)) for each in manifest.lineage)
        if manifest.donor:
            yield "tokenizer", f"{_source(manifest.donor.source)}; proof {manifest.donor.proof[:12]}"
        yield "with", ", ".join(f"{tool.name} {tool.version}" for tool in manifest.tools)
        yield (
            "asked for",
            ", ".join(
                f"{name} {value}"
                for name, value in manifest.parameters.items()
                if name != INHERITS and value not in (None, [], "")
            ),
        )
        yield from (("can", sentence) for sentence in manifest.can)
        yield from (("cannot", sentence) for sentence in manifest.cannot)
    yield "signed", ", ".join(f"by the key {key[:16]}, not verified here" for key in shown.signers)
    yield "version", f"{row.version}, {_day(row)}"
    yield "manifest", shown.where or "none: nothing was published"


def _reasons(reasons: "Iterable[Reason]") -> Iterator[tuple[str, str]]:
    """The first is the reason, and those after it stand beside it."""
    for name, each in zip(chain(["reason"], repeat("also")), reasons, strict=False):
        yield name, f"{each.code}{f' at {each.where}' if each.where else ''}: {each.sentence}"
        yield "measured", _value(each.measured)
        yield "expected", _value(each.expected)
        yield "source", each.source or ""
        yield "would help", each.would_change or ""


def _value(value: Any) -> str:
    """JSON, and text without its quotes."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pair(each: "Pairing") -> str:
    trained = {
        True: ", off-pair: it was trained for others",
        False: "",
        None: ", for which it was trained is not known",
    }
    return f"{each.target}: {each.verdict}{trained[each.off_pair]}" + (f"; {each.why}" if each.why else "")


def _source(source: "Source") -> str:
    said = f"{source.repo or 'a folder'} at {source.commit}, licence {source.licence or 'not named'}"
    return said + (f", from {', '.join(source.base_models)}" if source.base_models else "")


def _files(manifest: "Manifest") -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("file", overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("sha256", overflow="fold")
    table.add_column("role")
    for file in manifest.files:
        table.add_row(plain(file.path), f"{file.size:,}", file.sha256, file.role)
    return table


def _evidence(evidence: Mapping[str, Any]) -> Iterator[str]:
    """A line a document: what it is, and what in it does not pass."""
    for path, content in evidence.items():
        if not isinstance(content, dict):
            yield f"{path}: {content}"
            continue
        if isinstance(totals := content.get("totals"), dict):  # of a conversion
            exact = "every value is what it was" if content.get("exact") is True else "not every value is what it was"
            yield f"{path}: {', '.join(f'{count} tensors {how}' for how, count in totals.items())}; {exact}"
            continue
        checks = [check for check in content.get("checks", ()) if isinstance(check, dict)]
        failing = [str(check.get("check") or check.get("id")) for check in checks if not _passes(check)]
        said = content.get("verdict") or (
            f"{len(checks) - len(failing)} of {len(checks)} checks pass" if checks else ""
        )
        named = [str(check.get("check") or check.get("id")) for check in checks]
        yield f"{path}: {said or 'no checks in it'}" + (
            f"; not passed: {', '.join(failing)}" if failing else f" ({', '.join(dict.fromkeys(named))})"
        )
        yield from (f"  {text}" for text in content.get("remarks", ()) if isinstance(text, str))


def _passes(check: Mapping[str, Any]) -> bool:
    return check.get("passed") is True or check.get("verdict") in ("pass", "not applicable")


def _draw_measurement(each: "Measurement", console: Console) -> None:
    console.print(
        f"  [bold]{plain(each.device)}[/] {plain(each.what)} with {plain(each.target_name)}, {plain(each.started)}: "
        f"{plain(each.sentence)}"
    )
    for one in each.acceptance:
        if one.kind and one.offered:
            share, length = one.accepted / one.offered, (one.accepted + one.rounds) / one.rounds
            console.print(
                f"    {plain(one.kind):<14} {one.accepted} of {one.offered} accepted ({share:.1%}), "
                f"{length:.2f} tokens/round, untruncated"
            )
    console.print(f"    {plain(each.engine_device)}, {plain(each.build)}, n_max {each.n_max}; {plain(each.report)}")


def _day(row: Any) -> str:
    return f"{row.created:%Y-%m-%d}"
