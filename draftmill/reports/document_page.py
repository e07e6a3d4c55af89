"""A document as a page of its own: every text escaped, plots inline, nothing from elsewhere."""

from html import escape

from draftmill.reports.document import Block, Document, Facts, Folded, Items, Plot, Section, Table, Text, Verbatim
from draftmill.reports.style import STYLE
from draftmill.reports.visible import visible

_MOST_STACKED = 24
"""Rows. A phone shows a wide table's rows one below the other; a long one is better scrolled sideways."""


def document_page(document: Document) -> str:
    """HTML, UTF-8."""
    head = f"{document.word}: {document.title}"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>{_plain(head)}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{_plain(document.title)}</h1>",
        f'<p class="verdict {document.tone}">{_plain(document.sentence)}</p>',
        f'<p class="small">{_plain(document.below)}</p>',
        *(_section(section) for section in document.sections),
        "</main></body></html>",
    ]
    return "\n".join(parts) + "\n"


def _section(section: Section) -> str:
    return (
        f"<section><h2>{_plain(section.title)}</h2>\n"
        + "\n".join(_block(block, section.title) for block in section.blocks)
        + "</section>"
    )


def _block(block: Block, under: str) -> str:
    """under: the heading that is read before it."""
    match block:
        case Text(text):
            return f"<p>{_shown(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{_shown(item)}</li>" for item in items) + "</ul>"
        case Facts(facts):
            rows = "".join(f"<div><dt>{_shown(name)}</dt><dd>{_shown(value)}</dd></div>" for name, value in facts)
            return f"<dl>{rows}</dl>"
        case Table():
            return _table(block, under)
        case Plot():
            return f"<figure>{block.svg}<figcaption>{_plain(block.title)}</figcaption></figure>"
        case Folded(summary, blocks):
            inside = "\n".join(_block(each, summary) for each in blocks)
            return f"<details><summary>{_plain(summary)}</summary>\n{inside}</details>"


def _table(table: Table, under: str) -> str:
    kinds = [' class="number"' if column in table.numeric else "" for column in range(len(table.head))]
    head = "".join(f'<th scope="col"{kind}>{_plain(name)}</th>' for kind, name in zip(kinds, table.head, strict=True))
    rows = "\n".join(_row(row, kinds, table.head) for row in table.rows)
    stacked = ' class="stacked"' if len(table.head) > 3 and len(table.rows) <= _MOST_STACKED else ""
    caption = _plain(table.caption)
    shown = "" if table.caption == under else f"<caption>{caption}</caption>"
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table{stacked}>{shown}'
        f"<thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(row: tuple[str, ...], kinds: list[str], head: tuple[str, ...]) -> str:
    first, *others = row
    cells = "".join(
        f'<td{kind} data-name="{_plain(name)}">{_shown(cell)}</td>'
        for kind, name, cell in zip(kinds[1:], head[1:], others, strict=True)
    )
    return f'<tr><th scope="row"{kinds[0]} data-name="{_plain(head[0])}">{_shown(first)}</th>{cells}</tr>'


def _plain(text: str) -> str:
    return escape(visible(text))


def _shown(text: str) -> str:
    return f"<code>{_plain(text)}</code>" if isinstance(text, Verbatim) else _plain(text)
