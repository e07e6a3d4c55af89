"""What a run would do and why: on the real hub server, with one thing changed at a time."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import flows.recipe
from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.standing import Standing, update_standings
from draftmill.hub.described import Repository
from draftmill.hub.ref import parse_ref
from draftmill.hub.resolve import resolve
from draftmill.hub.server import HubHandler, HubServer, serve
from draftmill.hub.source import Mirror
from draftmill.outcome import BadConfiguration
from draftmill.store.opening import open_store
from flows.catalogue_order import CatalogueOrder
from flows.catalogue_plan import Item, Plan, as_json
from flows.catalogue_planner import make_plan
from tests.support.catalogue_hub import (
    BORROWER,
    BROKEN,
    CATALOGUE,
    CHECKPOINT,
    CHECKPOINTS,
    DONOR,
    HEAD,
    PACKAGE,
    PLAIN,
    write_all,
    write_catalogue,
    write_checkpoints,
    write_donor,
    write_package,
)
from tests.support.hub_server import Fault, misbehaving_hub

ALL = [PACKAGE, HEAD, BROKEN, PLAIN, BORROWER]


class Place:
    """A hub, a catalogue and a store of one test."""

    def __init__(self, folder: Path, hub: Path, endpoint: str) -> None:
        self.folder, self.hub, self.endpoint = folder, hub, endpoint
        write_catalogue(folder)

    def plan(self, **asked: Any) -> Plan:
        path = self.folder / "catalogue.yaml"
        order = CatalogueOrder(
            catalogue=path, hub=self.endpoint, store=str(self.folder / "store"), work=self.folder / "work", **asked
        )
        return make_plan(order, load_catalogue(path), open_store(order.store))

    def reasons(self, **asked: Any) -> dict[str, str]:
        return {item.repo: item.reason for item in self.plan(**asked).items}

    def remember(
        self, items: list[Item], verdict: str = "pass", seconds: float = 0.0, unreached: tuple[str, ...] = ()
    ) -> None:
        """As a run does that ended so."""
        catalogue = load_catalogue(self.folder / "catalogue.yaml")
        new = {
            item.repo: Standing(
                verdict=verdict,
                sentence="",
                commit=item.commit,
                family=item.family,
                route=item.route,
                rules=catalogue.rules_digest,
                made_of=item.made_of,
                at="2026-01-01T00:00:00Z",
                run="1",
                size=item.work.listing.size if item.work else 0,
                seconds=seconds,
                listed=item.listed,
                files=item.files,
                unreached=unreached,
            )
            for item in items
        }
        update_standings(open_store(str(self.folder / "store")), new)

    def edit(self, old: str, new: str) -> None:
        assert CATALOGUE.count(old) == 1
        write_catalogue(self.folder, CATALOGUE.replace(old, new))


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    root = tmp_path_factory.mktemp("hub")
    write_all(root)
    with serve(root) as server:
        yield root, server.endpoint


@pytest.fixture
def place(tmp_path: Path, hub: tuple[Path, str]) -> Place:
    return Place(tmp_path, *hub)


@pytest.fixture
def known(place: Place) -> Place:
    """After a run in which everything passed."""
    place.remember(place.plan().items)
    return place


def test_what_never_ran_runs_by_the_family_that_it_shows(place: Place) -> None:
    plan = place.plan()
    assert [(item.repo, item.family, item.route) for item in plan.items] == [
        (PACKAGE, "DFlash", "gate"),
        (HEAD, "Gumiho", "refuse"),
        (BROKEN, "PARD", "gguf"),
        (PLAIN, "PARD", "gguf"),
        (BORROWER, "PARD-2", "gguf_borrowed"),
    ]
    assert {item.reason for item in plan.items} == {"no run before"}
    assert plan.unlisted == [BROKEN]


def test_a_plan_writes_nothing(place: Place) -> None:
    place.plan()
    assert [path.name for path in place.folder.iterdir()] == ["catalogue.yaml"]


def test_bytes_are_those_of_the_files_that_would_be_fetched(place: Place) -> None:
    plan = place.plan()
    expected = {
        repo: sum(path.stat().st_size for path in (place.hub / repo).iterdir()) for repo in (PACKAGE, PLAIN, BORROWER)
    }
    found = {item.repo: item.work.needs.download for item in plan.items if item.work}
    assert found == expected | {HEAD: 0, BROKEN: found[BROKEN]}
    assert plan.download == sum(found.values())


def test_nothing_runs_where_nothing_changed_and_each_says_so(known: Place) -> None:
    plan = known.plan()
    assert plan.items == []
    assert sorted(skip.repo for skip in plan.skips) == sorted(ALL)
    assert all(skip.reason.startswith("nothing changed") and skip.verdict == "pass" for skip in plan.skips)


def test_a_refusal_holds_while_nothing_changes_and_a_failure_does_not(place: Place) -> None:
    items = place.plan().items
    place.remember(items, "refused")
    assert place.reasons() == {}
    for verdict in ("failed", "no verdict"):
        place.remember([item for item in items if item.repo == PLAIN], verdict)
        assert place.reasons() == {PLAIN: f"{verdict} the last time: "}


def test_a_new_commit_runs_that_drafter(known: Place) -> None:
    card = known.hub / PLAIN / "README.md"
    before = card.read_text()
    try:
        card.write_text(before + "\nmore\n")
        reasons = known.reasons()
    finally:
        card.write_text(before)
    assert list(reasons) == [PLAIN]
    assert reasons[PLAIN].startswith("commit ")


def test_a_new_commit_of_the_donor_runs_the_borrower(known: Place) -> None:
    known.edit("  tiny/SmolLM2-135M: {}\n", "")
    known.remember(known.plan().items)
    card = known.hub / DONOR / "README.md"
    before = card.read_text()
    try:
        card.write_text(before + "\nmore\n")
        assert known.reasons() == {BORROWER: "donor changed"}
    finally:
        card.write_text(before)


def test_new_code_of_a_job_runs_what_that_job_works_on(known: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    code = flows.recipe.code_digest
    changed = {"quantize"}
    monkeypatch.setattr(flows.recipe, "code_digest", lambda job: "0" * 64 if job in changed else code(job))
    assert known.reasons() == dict.fromkeys([BROKEN, PLAIN, BORROWER], "code of quantize changed")
    changed = {"gate"}
    assert known.reasons() == {PACKAGE: "code of gate changed"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  tiny/Absent: {}\n", "  tiny/Other: {}\n", dict.fromkeys([BROKEN, PLAIN, BORROWER], "targets changed")),
        ("trained_for: [tiny/Another]", "trained_for: [tiny/Third]", {BORROWER: "trained for changed"}),
        ("{family: Gumiho}", "{family: Gumiho, quants: [Q8_0]}", {}),
        (
            "    trained_for: [tiny/SmolLM2-135M]",
            "    trained_for: [tiny/SmolLM2-135M]\n    quants: [Q4_0]",
            {PLAIN: "parameters changed"},
        ),
        ("spd_type: pard2", "spd_type: [pard2, pard_2]", dict.fromkeys(ALL, "the catalogue's rules changed")),
    ],
)
def test_a_change_of_the_catalogue_runs_what_it_touches(
    known: Place, old: str, new: str, expected: dict[str, str]
) -> None:
    known.edit(old, new)
    assert known.reasons() == expected


def test_only_and_again_choose(known: Place) -> None:
    assert known.reasons(again=True, only="tiny/PARD2-*") == {BORROWER: "asked for again"}
    assert known.reasons(again=True, only="fast/*") == {PACKAGE: "asked for again"}
    assert known.reasons(only="fast/*") == {}


@pytest.mark.parametrize("only", ["nobody/*", "tiny/NOPE*", "PARD2-*", "tiny/pard2-*"])
def test_a_pattern_that_fits_nothing_is_an_error_that_names_it(known: Place, only: str) -> None:
    with pytest.raises(BadConfiguration, match=re.escape(repr(only))) as caught:
        known.plan(only=only)
    assert caught.value.code == "catalogue.only"


def test_an_order_with_an_empty_pattern_is_refused() -> None:
    with pytest.raises(ValidationError, match="only"):
        CatalogueOrder(only="")


def test_a_row_that_the_hub_does_not_have_and_one_without_a_family_are_told(
    place: Place, hub: tuple[Path, str]
) -> None:
    place.edit("{family: Gumiho}", "{family: Gumiho}\n  tiny/Gone: {}\n  tiny/SmolLM2-135M: {}")
    problems = {item.repo: item.problem.code for item in place.plan().items if item.problem}
    assert problems == {"tiny/Gone": "catalogue.gone", DONOR: "catalogue.family_unknown"}


def test_a_borrower_without_a_donor_is_told(place: Place) -> None:
    place.edit("    donor: tiny/SmolLM2-135M@main\n", "")
    problems = {item.repo: item.problem.code for item in place.plan().items if item.problem}
    assert problems == {BORROWER: "catalogue.no_donor"}


def test_a_donor_that_is_not_pinned_is_told_with_the_commit_of_this_run(place: Place, hub: tuple[Path, str]) -> None:
    (item,) = place.plan(only=BORROWER).items
    assert item.work and item.work.recipe.donor
    commit = item.work.recipe.donor
    (remark,) = item.work.remarks
    assert f"tiny/SmolLM2-135M@main is not pinned: this run takes it at {commit}" in remark
    place.edit("donor: tiny/SmolLM2-135M@main", f"donor: tiny/SmolLM2-135M@{commit}")
    (item,) = place.plan(only=BORROWER).items
    assert item.work and item.work.remarks == ()


def test_the_text_of_a_licence_runs_what_inherits_it_again(place: Place) -> None:
    text = CATALOGUE.replace("trained_for: [tiny/SmolLM2-135M]", "trained_for: [meta-llama/Llama-3.2-1B]")
    write_catalogue(place.folder, text)
    place.remember(place.plan().items)
    (place.folder / "LICENSE").write_text("one")
    write_catalogue(place.folder, text + "licences:\n  llama3.2: {files: [LICENSE]}\n  gemma: {files: [LICENSE]}\n")
    assert place.reasons() == {PLAIN: "parameters changed"}


def test_time_is_what_the_jobs_took_before_scaled_by_bytes(place: Place) -> None:
    items = place.plan().items
    assert {item.repo: item.seconds for item in items} == dict.fromkeys(ALL) | {HEAD: 0.0}
    plain = next(item for item in items if item.repo == PLAIN)
    place.remember([plain], seconds=100.0)
    seconds = {item.repo: item.seconds for item in place.plan(again=True).items}
    assert seconds[PLAIN] == 100.0
    sizes = {item.repo: item.work.listing.size for item in items if item.work}
    assert seconds[BROKEN] == pytest.approx(100.0 * sizes[BROKEN] / sizes[PLAIN])
    assert seconds[BORROWER] is None
    assert as_json(place.plan(again=True))["seconds_unknown_for"] == 2


def test_a_route_that_is_no_module_is_told_by_its_line(place: Place) -> None:
    place.edit("route: gate", "route: ship")
    with pytest.raises(
        BadConfiguration, match=r"line \d+, families.DFlash.route: there is no route ship; they are dflash, gate"
    ):
        place.plan()


def test_a_mirror_folder_is_planned_like_a_hub(place: Place) -> None:
    expected = [(item.repo, item.family) for item in place.plan().items]
    place.endpoint = f"file://{place.hub}"
    assert [(item.repo, item.family) for item in place.plan().items] == expected


class Branched:
    """A hub whose repositories have two commits: on `main` what lies in the folder main, on `dev` what lies in dev."""

    def __init__(self, folder: Path) -> None:
        self.main, self.dev = folder / "main", folder / "dev"
        self.asked: list[str] = []
        for root in (self.main, self.dev):
            write_donor(root)
            write_package(root)
        # The gate's report names what it was not given, so that HEAD would have other parameters than dev.
        (self.main / PACKAGE / "notes.txt").write_text("on main alone")
        (self.dev / PACKAGE / "README.md").write_text("---\nlicense: other\n---\n")
        branch, asked = HubServer(self.dev, ("127.0.0.1", 0), HubHandler), self.asked
        branch.server_close()  # it is asked directly
        self.branch = branch

        class Handler(HubHandler):
            def answer(self) -> None:
                asked.append(self.path)
                super().answer()

            def _found(self, name: str, revision: str) -> Repository | None:
                on_dev = branch.repository(name)
                if on_dev and revision in ("dev", on_dev.commit):
                    return on_dev
                return super()._found(name, revision)

        self.handler = Handler

    def commit(self) -> str:
        """Of the package on dev."""
        repository = self.branch.repository(PACKAGE)
        assert repository
        return repository.commit


@pytest.fixture
def branched(tmp_path: Path) -> Iterator[tuple[Branched, Place]]:
    hub = Branched(tmp_path)
    with serve(hub.main, handler=hub.handler) as server:
        yield hub, Place(tmp_path, hub.main, server.endpoint)


def at(place: Place, revision: str | None) -> None:
    """The package's row at this revision."""
    place.edit("licence: openmdw-1.1}", f"licence: openmdw-1.1{f', revision: {revision}' if revision else ''}}}")


def test_a_row_that_is_pinned_moved_or_freed_runs_again(branched: tuple[Branched, Place]) -> None:
    hub, place = branched
    (item,) = place.plan(only=PACKAGE).items
    main, first = item.commit, hub.commit()
    place.remember([item])
    at(place, first)
    (item,) = place.plan(only=PACKAGE).items
    assert (item.reason, item.commit) == (f"commit {main[:12]} -> {first[:12]}", first)
    place.remember([item])
    assert place.reasons(only=PACKAGE) == {}

    (hub.dev / PACKAGE / "README.md").write_text("---\nlicense: mit\n---\n")
    second = hub.commit()
    at(place, second)
    (item,) = place.plan(only=PACKAGE).items
    assert (item.reason, item.commit) == (f"commit {first[:12]} -> {second[:12]}", second)
    place.remember([item])
    at(place, None)
    assert place.reasons(only=PACKAGE) == {PACKAGE: f"commit {second[:12]} -> {main[:12]}"}


def test_a_branch_that_moves_on_runs_its_row(branched: tuple[Branched, Place]) -> None:
    hub, place = branched
    at(place, "dev")
    first = hub.commit()
    (item,) = place.plan(only=PACKAGE).items
    assert item.commit == first
    place.remember([item])
    assert place.reasons(only=PACKAGE) == {}
    (hub.dev / PACKAGE / "README.md").write_text("---\nlicense: mit\n---\n")
    assert place.reasons(only=PACKAGE) == {PACKAGE: f"commit {first[:12]} -> {hub.commit()[:12]}"}


def test_a_pinned_row_is_judged_by_the_files_of_its_pin(branched: tuple[Branched, Place]) -> None:
    hub, place = branched
    at(place, hub.commit())
    (item,) = place.plan(only=PACKAGE).items
    assert item.work and "notes.txt" not in item.work.subject.files
    place.remember([item])
    (hub.main / PACKAGE / "more.txt").write_text("and HEAD moves on")
    assert place.reasons(only=PACKAGE) == {}


def test_only_a_branch_costs_a_plan_a_request(branched: tuple[Branched, Place]) -> None:
    hub, place = branched
    for revision, expected in ((None, 0), (hub.commit(), 0), ("dev", 1)):
        at(place, revision)
        place.remember(place.plan(only=PACKAGE).items)
        hub.asked.clear()
        assert place.plan(only=PACKAGE).items == []
        assert len([path for path in hub.asked if "?author=" not in path]) == expected, revision


def test_a_refused_row_at_a_pin_stays_refused(branched: tuple[Branched, Place]) -> None:
    hub, place = branched
    (hub.dev / PACKAGE / "config.json").write_text("{}")
    for pin in (hub.commit(), "ab" * 20):
        at(place, pin)
        (item,) = place.plan(only=PACKAGE).items
        assert item.problem and item.commit == pin
        place.remember([item], "refused")
        assert place.reasons(only=PACKAGE) == {}


def test_a_checkpoint_of_a_mirror_without_pins_has_the_commit_of_what_its_run_takes(tmp_path: Path) -> None:
    root = tmp_path / "mirror"
    write_donor(root)
    write_checkpoints(root)
    place = Place(tmp_path, root, f"file://{root}")
    text = CATALOGUE
    for old, new in CHECKPOINTS.items():
        text = text.replace(old, new)
    write_catalogue(tmp_path, text)
    (item,) = place.plan(only=CHECKPOINT).items
    assert item.work
    taken = resolve(parse_ref(item.work.order.ref), Mirror(root), "draft")
    assert (taken.commit, taken.files) == (item.commit, item.work.listing.files)
    # The code beside the weights is no byte of the run's.
    sizes = [(root / CHECKPOINT / name).stat().st_size for name in ("LICENSE", "README.md", "config.json")]
    expected = sum(sizes) + (root / CHECKPOINT / "model.safetensors").stat().st_size
    assert item.work.needs.download == expected

    place.remember([item])
    assert place.reasons(only=CHECKPOINT) == {}
    with (root / CHECKPOINT / "README.md").open("a") as card:
        card.write("more")
    assert place.reasons(only=CHECKPOINT)[CHECKPOINT].startswith("commit ")


def test_a_checkpoint_of_a_hub_needs_what_its_run_takes(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    write_donor(root)
    write_checkpoints(root)
    with serve(root) as hub:
        place = Place(tmp_path, root, hub.endpoint)
        text = CATALOGUE
        for old, new in CHECKPOINTS.items():
            text = text.replace(old, new)
        write_catalogue(tmp_path, text)
        (item,) = place.plan(only=CHECKPOINT).items
        assert item.work and "dflash.py" in item.work.subject.files
        assert [f.path for f in item.work.listing.files] == ["LICENSE", "README.md", "config.json", "model.safetensors"]
        assert item.work.needs.download == sum(file.size for file in item.work.listing.files)


def test_a_target_out_of_reach_is_tried_again_once_it_can_be_read(tmp_path: Path, hub: tuple[Path, str]) -> None:
    with misbehaving_hub(hub[0]) as faulty:
        place = Place(tmp_path, hub[0], faulty.endpoint)
        place.remember(place.plan(only=PLAIN).items, unreached=(DONOR,))
        donor = faulty.server.repository(DONOR)
        assert donor
        # A gated repository: described to anybody, its files to those who may.
        faulty.faults.append(Fault("status", f"{donor.commit}/config.json", None, status=401))
        (skip,) = place.plan(only=PLAIN).skips
        assert skip.reason.endswith(f", out of reach: {DONOR}")
        faulty.faults.clear()
        assert place.reasons(only=PLAIN) == {PLAIN: f"not judged against {DONOR} the last time"}


def test_a_failure_that_no_target_stands_for_is_tried_again(known: Place) -> None:
    known.remember(known.plan(only=PLAIN, again=True).items, unreached=("every target",))
    assert known.reasons() == {PLAIN: "not judged against every target the last time"}
