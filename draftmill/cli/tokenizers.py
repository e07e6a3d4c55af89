"""`draftmill tokenizers`: may a draft speculate for a target, as far as their vocabularies decide it?"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from draftmill.cli.telling import plain, printer, tell
from draftmill.outcome import Refused

app = typer.Typer(no_args_is_help=True, help="Compare tokenizers.")

COMPATIBLE, REFUSED = 0, 1
_BY_REMARK = ("texts", "kind", "bos", "eos", "add_bos", "add_eos", "merges", "scores", "token_types")
"""Facets whose difference a refusal or a remark tells already."""
NOT_COMPARED = "[yellow]not compared[/]"
COLOURS = {"compatible": "green", "compatible with remarks": "yellow", "refused": "red"}
_RULE = {
    "kind": "vocabulary type",
    "add_bos": "adds a bos",
    "bos": "bos id",
    "add_eos": "adds an eos",
    "eos": "eos id",
    "size": "tokens",
}
_Place = Annotated[Path, typer.Argument(exists=True, help="A GGUF file, a tokenizer.json, or a folder that holds one.")]


@app.callback()
def tokenizers() -> None:
    """Compare tokenizers."""


@app.command("compare")
def compare_command(
    target: _Place,
    draft: _Place,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """May DRAFT speculate for TARGET? llama-server's own rule, which it applies silently, and what it does not look at.

    Ends with 0 when they are compatible (remarks included), 1 when they are not or a file is refused, 2 on wrong usage.
    """
    try:
        value = compared(target, draft)
    except Refused as refused:
        if not as_json:
            raise
        typer.echo(json.dumps({"verdict": "refused", "refusals": [each.as_json() for each in refused.refusals]}))
        raise typer.Exit(REFUSED) from None
    if as_json:
        typer.echo(json.dumps(value))
    else:
        show(value)
    raise typer.Exit(REFUSED if value["refusals"] else COMPATIBLE)


def compared(target: Path, draft: Path) -> dict[str, Any]:
    """The whole comparison as JSON. Raises Refused for files that are not what they should be, OSError."""
    from draftmill.tokenizers.identity import compare
    from draftmill.tokenizers.pairing import FIRST_COMPARED, different_texts, ruled
    from draftmill.tokenizers.sources import as_gguf, pair_sources, read_both

    sources = read_both(target, draft)
    pairing = pair_sources(*sources)
    ours, theirs = as_gguf(*sources)
    different = [token for token in different_texts(ours, theirs) if token >= FIRST_COMPARED]
    return {
        "verdict": pairing.verdict,
        "first_difference": pairing.first_difference,
        "refusals": [refusal.as_json() for refusal in pairing.refusals],
        "remarks": list(pairing.remarks),
        "texts": {"compared": max(0, min(ours.size, theirs.size) - FIRST_COMPARED), "different": len(different)},
        "identity": compare(*(source.vocabulary for source in sources)).as_json(),
    } | {
        side: {"path": str(source.path), "form": source.form, "rule": asdict(ruled(view)), "pre": view.pre}
        for side, source, view in zip(("target", "draft"), sources, (ours, theirs), strict=True)
    }


def show(value: dict[str, Any]) -> None:
    console = printer(soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "target", "draft", ""):
        table.add_column(heading)
    for side in ("target", "draft"):
        console.print(f"{side:8}{plain(value[side]['path'])}", soft_wrap=True)
    table.add_row("read from", *(value[side]["form"] for side in ("target", "draft")))
    failed = {refusal["code"].removeprefix("tokenizer.pair_") for refusal in value["refusals"]}
    for name, title in _RULE.items():
        rules = [value[side]["rule"] for side in ("target", "draft")]
        ours, theirs = (rule[name] for rule in rules)
        note = "[red]refused[/]" if name in failed else "[yellow]within 128[/]" if name == "size" else NOT_COMPARED
        said = [_said(rule[name], name in rule["assumed"]) for rule in rules]
        table.add_row(title, *said, _note(ours, theirs, note))
    ours, theirs = (value[side]["pre"] for side in ("target", "draft"))
    table.add_row("pre-tokenizer", _said(ours), _said(theirs), _note(ours, theirs, NOT_COMPARED))
    console.print(table)
    texts, identity = value["texts"], value["identity"]
    console.print(f"texts from id 5 up: {texts['compared']} compared, {texts['different']} differ", soft_wrap=True)
    console.print(f"identity: {identity['level']}; equal: {', '.join(identity['equal']) or 'nothing'}", soft_wrap=True)
    if identity["not_comparable"]:
        console.print(f"  stated by one side only: {', '.join(identity['not_comparable'])}", soft_wrap=True)
    for difference in identity["differences"]:
        if not difference.startswith(_BY_REMARK):
            console.print(f"  {plain(difference)}", soft_wrap=True)
    for remark in value["remarks"]:
        console.print(f"[yellow]remark[/] {plain(remark)}", soft_wrap=True)
    for refusal in value["refusals"]:
        tell(console, "refused", refusal)
    first = f": {plain(value['first_difference'])}" if value["first_difference"] else ""
    console.print(f"[{COLOURS[value['verdict']]}]{value['verdict']}[/]{first}", soft_wrap=True)


def _said(value: Any, is_assumed: bool = False) -> str:
    if value is None:
        return "-"
    said = {True: "yes", False: "no"}[value] if isinstance(value, bool) else plain(str(value))
    return f"{said} (assumed)" if is_assumed else said


def _note(ours: Any, theirs: Any, note: str) -> str:
    return "" if ours == theirs or None in (ours, theirs) else note
