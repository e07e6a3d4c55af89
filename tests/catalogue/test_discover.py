"""What changed at an author, found on the small hub."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.standing import Standing, update_standings
from draftmill.hub.server import HubHandler, HubServer, serve
from draftmill.store.opening import open_store
from flows.catalogue_discovery import discover

CATALOGUE = """families:
  PARD:
    route: gguf
    names: [tiny/PARD-*]
    signs:
      - config: {spd_type: pard}
drafters:
  tiny/PARD-One-1B: {family: PARD, licence: mit}
  tiny/PARD-Two-1B: {family: PARD, licence: mit}
"""
PARD = {"spd_type": "pard", "pard_token": 5, "vocab_size": 9}


def write_repository(root: Path, name: str, licence: str = "mit", config: dict[str, object] | None = None) -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(PARD if config is None else config))
    (folder / "README.md").write_text(f"---\nlicense: {licence}\n---\n{name}\n")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "catalogue.yaml").write_text(CATALOGUE)
    write_repository(tmp_path / "hub", "tiny/PARD-One-1B")
    write_repository(tmp_path / "hub", "tiny/PARD-Two-1B")
    write_repository(tmp_path / "hub", "tiny/Unrelated", "gemma", {})
    return tmp_path


def found(place: Path, endpoint: str, *authors: str) -> list[tuple[str, str, str, str]]:
    proposals = discover(place / "catalogue.yaml", authors or None, hub=endpoint, store=str(place / "store"))
    return [(each.kind, each.repo, each.sentence, each.row) for each in proposals]


@contextmanager
def renaming(root: Path, old: str, new: str) -> Iterator[HubServer]:
    """A hub that answers for an old name with a redirect to the new one, as the Hub does."""

    class Renamed(HubHandler):
        def answer(self) -> None:
            if old not in self.path:
                super().answer()
                return
            self.send_response(307)
            self.send_header("Location", self.path.replace(old, new))
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serve(root, handler=Renamed) as hub:
        yield hub


def test_nothing_is_proposed_where_nothing_changed(place: Path) -> None:
    with serve(place / "hub") as hub:
        assert found(place, hub.endpoint) == []
    assert not (place / "store").exists()


def test_a_new_drafter_is_proposed_with_the_family_that_it_shows(place: Path) -> None:
    write_repository(place / "hub", "tiny/PARD-New-0.6B", "apache-2.0")
    write_repository(place / "hub", "tiny/PARD-Empty-1B", config={})
    with serve(place / "hub") as hub:
        empty, new = found(place, hub.endpoint, "tiny")
    assert (new[0], new[1]) == ("new", "tiny/PARD-New-0.6B")
    assert new[2].startswith("PARD, commit ")
    assert new[2].endswith("; by its name the draft has 0.6B")
    assert new[3] == "  tiny/PARD-New-0.6B:\n    family: PARD\n    licence: apache-2.0"
    # Its name is a family's, and it shows none: no row, and the reason.
    assert (empty[0], empty[1], empty[3]) == ("new", "tiny/PARD-Empty-1B", "")
    assert "a name alone decides nothing" in empty[2]


def test_a_drafter_that_is_gone_is_told(place: Path) -> None:
    (place / "hub/tiny/PARD-Two-1B").rename(place / "elsewhere")
    with serve(place / "hub") as hub:
        proposals = found(place, hub.endpoint)
    assert [each[:2] for each in proposals] == [("gone", "tiny/PARD-Two-1B")]


def test_a_renamed_drafter_is_known_by_the_hubs_redirect(place: Path) -> None:
    old, new = "tiny/PARD-Two-1B", "tiny/PARD-Second-1B"
    (place / "hub" / old).rename(place / "hub" / new)
    with renaming(place / "hub", old, new) as hub:
        proposals = found(place, hub.endpoint)
    assert [each[:2] for each in proposals] == [("renamed", old)]
    assert proposals[0][2].startswith(f"now {new}:")
    assert proposals[0][3] == f"  {new}:\n    family: PARD\n    licence: mit"


def test_a_known_row_is_proposed_whole_in_place_of_the_one_that_stands(place: Path) -> None:
    (place / "LICENCE").write_text("text")
    keys = """  tiny/PARD-One-1B:
    family: PARD
    licence: mit
    donor: tiny/Donor@main
    trained_for: [tiny/T1, tiny/T2]
    derived_from: [tiny/Base]
    upstream: tiny/Up
    publish_as: tiny/Llama-One
    licence_files: [LICENCE]
    quants: [Q8_0]
    note: "no: a note"
"""
    old = "  tiny/PARD-One-1B: {family: PARD, licence: mit}\n"
    (place / "catalogue.yaml").write_text(CATALOGUE.replace(old, keys))
    before = load_catalogue(place / "catalogue.yaml")
    (place / "hub/tiny/PARD-One-1B/README.md").write_text("---\nlicense: gemma\n---\n")
    with serve(place / "hub") as hub:
        (proposal,) = discover(place / "catalogue.yaml", None, hub=hub.endpoint, store=str(place / "store"))
    assert proposal.replaces == "tiny/PARD-One-1B"
    (place / "catalogue.yaml").write_text(CATALOGUE.replace(old, proposal.row + "\n"))
    after = load_catalogue(place / "catalogue.yaml")
    expected = before.drafters["tiny/PARD-One-1B"].model_copy(update={"licence": "gemma"})
    assert after.drafters["tiny/PARD-One-1B"] == expected
    assert str(place) not in proposal.row


def test_without_a_redirect_it_is_known_by_the_commit_of_an_earlier_run(place: Path) -> None:
    old, new = "tiny/PARD-Two-1B", "tiny/PARD-Second-1B"
    with serve(place / "hub") as hub:
        before = hub.repository(old)
    assert before
    known = Standing("pass", "", before.commit, "PARD", "gguf", "", {}, "", "")
    update_standings(open_store(str(place / "store")), {old: known})
    (place / "hub" / old).rename(place / "hub" / new)
    with serve(place / "hub") as hub:
        proposals = found(place, hub.endpoint)
    assert [each[:2] for each in proposals] == [("renamed", old)]
    assert before.commit[:12] in proposals[0][2]


def test_another_licence_is_told_and_a_first_one_is_filled_in(place: Path) -> None:
    (place / "hub/tiny/PARD-Two-1B/README.md").write_text("---\nlicense: gemma\n---\n")
    text = CATALOGUE.replace("tiny/PARD-One-1B: {family: PARD, licence: mit}", "tiny/PARD-One-1B: {}")
    (place / "catalogue.yaml").write_text(text)
    with serve(place / "hub") as hub:
        proposals = found(place, hub.endpoint)
    assert [each[:3] for each in proposals] == [
        ("licence", "tiny/PARD-One-1B", "its card says mit"),
        ("re-licensed", "tiny/PARD-Two-1B", "its card says gemma, the catalogue mit"),
    ]
