"""A document as Markdown (GitHub's), read as it lies or rendered: columns line up, and no stranger's text marks up."""

import re
from html import escape

from draftmill.reports.document import Block, Document, Facts, Folded, Items, Plot, Section, Table, Text, Verbatim
from draftmill.reports.visible import visible

# Only where they would mark something up: what is read as it lies keeps its underscores and intervals.
_MARKS = re.compile(r"([\\`*<~|@$#]|^>|(?<![^\W_])_|_(?![^\W_])|!(?=\[)|\](?=[(\[:])|&(?=#?\w+;))")
_AT_START = re.compile(r"^(\d*)([-+=.)])(?=[\s=-]|$)")
_LINKED = re.compile(r"(?i)\bwww\.|\b[a-z]+://")


def document_text(document: Document) -> str:
    """CommonMark with GitHub's tables. Plots are named by their files beside it, and said in words."""
    parts = [
        f"# {_plain(document.title)}",
        f"**{_plain(document.sentence)}**",
        _plain(document.below),
        *(_section(section) for section in document.sections),
    ]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> str:
    return "\n\n".join([f"## {_plain(section.title)}", *(_block(block, section.title) for block in section.blocks)])


def _block(block: Block, under: str) -> str:
    """under: the heading that is read before it."""
    match block:
        case Text(text):
            return _shown(text)
        case Items(items):
            return "\n".join(f"* {_shown(item)}" for item in items)
        case Facts(facts):
            return "\n".join(f"* {_shown(name)}: {_shown(value)}" for name, value in facts)
        case Table():
            return _table(block, under)
        case Plot():
            return f"![{_plain(block.title)}]({block.name}.svg)\n\n{_plain(block.title)}: {_plain(block.said)}."
        case Folded(summary, blocks):
            inside = "\n\n".join(_block(each, summary) for each in blocks)
            # A block of HTML up to the empty line: Markdown's own escapes do not hold in it.
            return f"<details><summary>{escape(visible(summary))}</summary>\n\n{inside}\n\n</details>"


def _table(table: Table, under: str) -> str:
    cells = [[_plain(name) for name in table.head], *([_cell(cell) for cell in row] for row in table.rows)]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(table.head))]
    dashes = ["-" * (width - 1) + ":" if column in table.numeric else "-" * width
              for column, width in enumerate(widths)]  # fmt: skip
    lines = [
        "| "
        + " | ".join(
            cell.rjust(width) if column in table.numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for row in [cells[0], dashes, *cells[1:]]
    ]
    caption = "" if table.caption == under else f"{_plain(table.caption)}:\n\n"
    return caption + "\n".join(lines)


def _cell(text: str) -> str:
    # Inside a table even a code span's bars end the cell.
    return _code(text).replace("|", r"\|") if isinstance(text, Verbatim) else _plain(text)


def _shown(text: str) -> str:
    return _code(text) if isinstance(text, Verbatim) else _plain(text)


def _plain(text: str) -> str:
    escaped = _AT_START.sub(r"\1\\\2", _MARKS.sub(r"\\\1", visible(text).strip()))
    return _LINKED.sub(lambda found: _broken(found[0]), escaped)


def _code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks inside."""
    shown = visible(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown.strip() else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _broken(link: str) -> str:
    return link.replace(":", r"\:").replace(".", r"\.")
