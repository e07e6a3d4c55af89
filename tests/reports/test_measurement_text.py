"""report.md: lines up as it lies, renders to the same words, and marks up nothing that a stranger wrote."""

import json
import re
from collections.abc import Callable

import pytest
from markdown_it import MarkdownIt

from draftmill.measurement.record import Accepted, Speed
from draftmill.reports.document import Document, Facts, Section, Table, Text, Verbatim
from draftmill.reports.document_text import document_text
from draftmill.reports.measurement_document import measurement_document
from tests.support import measured
from tests.support.page import Page

OUTCOMES = {**measured.SPEEDS, **measured.ACCEPTANCES}


def text(record: Speed | Accepted) -> str:
    return document_text(measurement_document(record))


def rendered(markdown: str) -> Page:
    return Page(MarkdownIt("commonmark").enable("table").render(markdown))


def of(*blocks: Text | Facts | Table) -> str:
    return document_text(Document("title", "word", "plain", "sentence", "below", (Section("section", blocks),)))


@pytest.mark.parametrize("beginning", OUTCOMES)
def test_every_outcome_has_its_sentence_at_the_top(beginning: str) -> None:
    third = text(OUTCOMES[beginning]()).splitlines()[2]
    assert third.startswith(f"**{beginning}")
    assert third.endswith("**")


@pytest.mark.parametrize("make", OUTCOMES.values(), ids=OUTCOMES)
def test_columns_line_up_and_render_as_tables(make: Callable[[], Speed | Accepted]) -> None:
    markdown = text(make())
    tables = re.findall(r"(?:^\|.*\|\n)+", markdown, re.MULTILINE)
    assert len(tables) == rendered(markdown).tags["table"]
    for table in tables:
        lines = table.splitlines()
        assert len({len(line) for line in lines}) == 1
        assert re.fullmatch(r"\|( -+:? \|)+", lines[1])
        bars = [[at for at, each in enumerate(line) if each == "|" and line[at - 1] != "\\"] for line in lines]
        assert all(at == bars[0] for at in bars)


def test_numbers_are_set_to_the_right() -> None:
    table = Table("t", ("name", "n"), (("a", "1"), ("b", "1000")), frozenset({1}))
    assert "| name |    n |\n| ---- | ---: |\n| a    |    1 |\n| b    | 1000 |" in of(table)


def test_what_strangers_wrote_is_text_and_nothing_else() -> None:
    markdown = text(measured.hostile())
    assert "\u202e" not in markdown
    assert "\x1b" not in markdown
    found = rendered(markdown)
    assert not {"script", "img"} & set(found.tags)
    assert r"<script>alert(1)</script>\u202egpj.\x1b[31m|`x` ![a](http://evil.example/x.png)" in found.words
    harmless = measured.hostile().model_dump_json().replace(json.dumps(measured.HOSTILE, ensure_ascii=False)[1:-1], "n")
    assert found.tags == rendered(text(Speed.model_validate_json(harmless))).tags


@pytest.mark.parametrize(
    "hostile",
    [
        "# heading",
        "- item",
        "+ item",
        "1. item",
        "2) item",
        "> quote",
        "---",
        "===",
        "* * *",
        "**bold** _it_ __b__ ~~gone~~",
        "[a](http://evil.example)",
        "[a]: http://evil.example",
        "<b>bold</b> <http://evil.example> &lt; &#60;",
        "![a](x.png)",
        "`code`",
        "a | b",
        "\\*",
        "    indented",
        "```",
    ],
)
@pytest.mark.parametrize(
    "where", [Text, lambda each: Facts(((each, each),)), lambda each: Table("t", (each,), ((each,),))]
)
def test_no_text_becomes_markup(hostile: str, where: Callable[[str], Text | Facts | Table]) -> None:
    found, harmless = rendered(of(where(hostile))), rendered(of(where("x")))
    assert found.tags == harmless.tags
    assert hostile.strip() in found.words


@pytest.mark.parametrize("hostile", ["`", "a``b", "``` ", "|", "<b>", "**x**", "a\nb"])
@pytest.mark.parametrize("where", [Text, lambda each: Table("t", ("h",), ((each,),))])
def test_a_name_to_copy_stays_whole(hostile: str, where: Callable[[str], Text | Table]) -> None:
    found = rendered(of(where(Verbatim(hostile))))
    assert found.tags["code"] == 1
    assert hostile.replace("\n", r"\n").strip() in found.words


def test_links_of_strangers_do_not_link() -> None:
    found = of(Text("see https://evil.example and www.evil.example"))
    assert "https://" not in found
    assert "www.evil" not in found
    assert "see https://evil.example and www.evil.example" in rendered(found).words


def test_intervals_and_names_read_as_they_lie() -> None:
    markdown = text(measured.speed())
    assert "**faster, identical: 1.510x [1.420, 1.580] over 10 pairs**" in markdown
    assert "* n_max, drafts offered a round at most: 4" in markdown


def test_plots_are_named_by_their_files_and_said_in_words() -> None:
    markdown = text(measured.token_exact())
    assert re.findall(r"!\[[^\]]+\]\(([^)]+)\)", markdown) == ["positions.svg", "histogram.svg", "rounds.svg"]
    assert "sky: 4 0 4 4 1 2 4 4 4 0 0 0 4 0 0 4 0 4 0 1 4." in markdown
