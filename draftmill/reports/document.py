"""What a report says, before it is HTML, Markdown or a terminal's table: every form says the same.

Texts here are plain and may come from strangers; whoever renders them escapes them.
"""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "bad", "open", "plain"]
"""Of a verdict: what colour it has, never what it says."""


class Verbatim(str):
    """A name, digest, path or log line: shown in a fixed width, to be copied."""

    __slots__ = ()


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and their values, one below the other."""

    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """numeric: columns that are set to the right."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Plot:
    """name: of its file, without .svg. said: what it shows, in words, for those who do not see it."""

    name: str
    title: str
    said: str
    svg: str


@dataclass(frozen=True)
class Folded:
    """Evidence that few readers look at: there, and out of the way."""

    summary: str
    blocks: tuple["Block", ...]


Block = Text | Items | Facts | Table | Plot | Folded


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """word, sentence: the verdict. below: what is to be known before reading on."""

    title: str
    word: str
    tone: Tone
    sentence: str
    below: str
    sections: tuple[Section, ...]

    @property
    def plots(self) -> tuple[Plot, ...]:
        return tuple(block for section in self.sections for block in section.blocks if isinstance(block, Plot))
