"""report.html of the gate: self-contained, everything escaped, one row a tensor with its histograms."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from draftmill.dflash.gate import gate
from draftmill.reports.gate_files import write_gate
from draftmill.reports.gate_page import gate_page
from draftmill.reports.histogram_svg import HEIGHT, WIDTH, histogram_svg
from tests.support.dflash_packages import edit_config, tiny

VOID = {"meta", "rect", "line", "br"}


class Balanced(HTMLParser):
    """Counts elements, and fails where one is closed that is not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def value(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("page") / "package"
    tiny(folder, 1)
    return gate(folder).as_json()


def test_the_page_needs_nothing_from_elsewhere(value: Any) -> None:
    page = gate_page(value, "FastFlowLM/Tiny")
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", page)


def test_every_tensor_has_its_histograms(value: Any) -> None:
    """14 packed tensors with scales and ratios, 10 norms and the fusion matrix with magnitudes."""
    found = parsed(gate_page(value, "FastFlowLM/Tiny"))
    assert found.seen["svg"] == 14 * 2 + 10 + 1
    packed = [tensor for tensor in value["tensors"] if tensor["ratios"]]
    assert all(sum(tensor["ratios"]["counts"]) == tensor["figures"]["groups"] for tensor in packed)
    assert all(sum(tensor["scales"]["counts"]) == tensor["figures"]["groups"] for tensor in packed)


def test_every_check_and_every_refusal_is_on_the_page(tmp_path: Path) -> None:
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {"attention_bias": True, "mask_token_id": 9})
    value = gate(tmp_path / "p").as_json()
    page = gate_page(value, "FastFlowLM/Tiny")
    parsed(page)
    assert all(f">{check['id']}<" in page for check in value["checks"])
    assert "dflash.unsupported_key" in page
    assert "dflash.conflict" in page


def test_names_from_a_strangers_file_are_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    tiny(tmp_path / "p", 1)
    edit_config(tmp_path / "p", lambda content: content | {hostile: hostile, "model_type": hostile})
    page = gate_page(gate(tmp_path / "p").as_json(), hostile)
    parsed(page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_bars_stand_where_their_values_are() -> None:
    """Two bins from 0 to 2 on an axis from 0 to 4: the second is the larger, and reaches the top."""
    svg = histogram_svg((0.0, 1.0, 2.0), (1, 2), 0.0, 4.0, "a < b", mark=3.0)
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    assert [tuple(map(float, bar)) for bar in bars] == [
        (0.0, HEIGHT / 2, WIDTH / 4 - 0.3, HEIGHT / 2),
        (WIDTH / 4, 0.0, WIDTH / 4 - 0.3, HEIGHT),
    ]
    assert f'x1="{WIDTH * 3 / 4}"' in svg
    assert "a &lt; b" in svg


def test_both_files_are_written_whole_and_nothing_else(value: Any, tmp_path: Path) -> None:
    write_gate(tmp_path / "out", value, "FastFlowLM/Tiny")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["gate.json", "report.html"]
    assert json.loads((tmp_path / "out" / "gate.json").read_text()) == json.loads(json.dumps(value))
