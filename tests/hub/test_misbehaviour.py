"""Each way in which a hub can misbehave, and how the download ends."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from draftmill.hub.download import Received, download
from draftmill.hub.listing import Listing
from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Hub
from draftmill.outcome import MillError, NotPermitted, Refused, Temporary, Unavailable
from tests.support.hub_server import Fault, MisbehavingHub, misbehaving_hub, write_mirror

SIZE = 3_000_000
WEIGHTS = "model.safetensors"
CANARY = "hf_canary4711"


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mirror(tmp_path_factory.mktemp("mirror"), weights=SIZE)


@pytest.fixture
def hub(mirror: Path) -> Iterator[MisbehavingHub]:
    with misbehaving_hub(mirror) as hub:
        yield hub


class Run:
    """One download with recorded waits. It gives up a silent connection soon only where a test says so: a busy machine
    is slow too."""

    def __init__(self, hub: MisbehavingHub, out: Path, token: str | None = None) -> None:
        self.hub, self.out, self.waits = hub, out, list[float]()
        self.source = Hub(hub.endpoint, token, stall_s=30)
        self.listing: Listing = resolve(Ref("acme/tiny"), self.source, "model")

    def be_impatient(self) -> None:
        self.source = replace(self.source, stall_s=1)

    def download(self) -> Received:
        return download(self.listing, self.source, self.out, pause=self.waits.append)

    def ends_with(self, kind: type[MillError], code: str) -> MillError:
        with pytest.raises(kind) as error:
            self.download()
        assert error.value.code == code
        assert not (self.out / WEIGHTS).exists()
        return error.value

    def is_whole(self) -> bool:
        folder = self.hub.server.root / "acme/tiny"
        return {p.name: p.read_bytes() for p in self.out.iterdir()} == {
            p.name: p.read_bytes() for p in folder.iterdir()
        }

    def ranges(self) -> list[str | None]:
        return [asked.headers.get("range") for asked in self.hub.asked_for(WEIGHTS)]


@pytest.fixture
def run(hub: MisbehavingHub, tmp_path: Path) -> Run:
    return Run(hub, tmp_path / "out")


@pytest.mark.parametrize("kind", ["truncate", "short", "stall"])
def test_an_interrupted_body_is_continued(run: Run, kind: str) -> None:
    run.hub.faults.append(Fault(kind, WEIGHTS, after=1_000_000))
    if kind == "stall":
        run.be_impatient()
    run.download()
    assert run.is_whole()
    first, second = run.ranges()
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 1_000_000
    assert run.waits == [1]


def test_a_connection_that_is_reset_is_taken_up_again(run: Run) -> None:
    run.hub.faults.append(Fault("reset", WEIGHTS, after=2_500_000))
    run.download()
    assert run.is_whole()
    assert len(run.ranges()) == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [("truncate", "hub.broken"), ("short", "hub.truncated"), ("stall", "hub.stalled"), ("reset", "hub.broken")],
)
def test_a_body_that_never_gets_further_is_temporary_and_keeps_its_partial_file(run: Run, kind: str, code: str) -> None:
    run.hub.faults.append(Fault(kind, WEIGHTS, None, after=1_000_000))
    if kind == "stall":
        run.be_impatient()
    run.ends_with(Temporary, code)
    # A reset may cost the client some of what was sent: it gets further by one of four 256 KiB chunks at a time,
    # with five attempts for each, and six at the end.
    assert len(run.ranges()) <= (4 * 5 + 6 if kind == "reset" else 7)
    assert (run.out / f"{WEIGHTS}.partial").exists()
    run.hub.faults.clear()
    run.download()
    assert run.is_whole()


def test_progress_renews_patience(run: Run) -> None:
    run.hub.faults += [Fault("short", WEIGHTS, after=n * 300_000) for n in range(1, 9)]
    run.download()
    assert run.is_whole()
    assert run.waits == [1] * 8


@pytest.mark.parametrize("at", [0, 1_500_000, SIZE - 1])
def test_one_wrong_bit_is_refused_and_nothing_stays(run: Run, at: int) -> None:
    run.hub.faults.append(Fault("corrupt", WEIGHTS, None, after=at))
    run.ends_with(Refused, "hub.digest")
    assert run.ranges() == [None]
    assert not (run.out / f"{WEIGHTS}.partial").exists()


def test_one_wrong_bit_in_a_small_file_is_refused_by_its_git_blob_id(run: Run) -> None:
    run.hub.faults.append(Fault("corrupt", "config.json", None, after=2))
    with pytest.raises(Refused) as refused:
        run.download()
    assert (refused.value.code, refused.value.where) == ("hub.digest", "config.json")
    assert not (run.out / "config.json").exists()


def test_all_wrong_files_are_named_together_and_the_right_ones_arrive(run: Run) -> None:
    for name in ("config.json", "README.md"):
        run.hub.faults.append(Fault("corrupt", name, None, after=2))
    with pytest.raises(Refused) as refused:
        run.download()
    assert {r.where for r in refused.value.refusals} == {"config.json", "README.md"}
    assert [path.name for path in run.out.iterdir()] == [WEIGHTS]


@pytest.mark.parametrize("kind", ["short", "truncate"])
def test_wrong_bytes_in_a_continued_body_are_fetched_once_more_in_one_piece(run: Run, kind: str) -> None:
    run.hub.faults += [Fault(kind, WEIGHTS, after=1_000_000), Fault("corrupt", WEIGHTS, after=2_000_000)]
    run.download()
    assert run.is_whole()
    first, second, third = run.ranges()
    assert (first, third) == (None, None)
    assert second is not None


def test_wrong_bytes_that_stay_wrong_are_refused_after_one_more_fetch(run: Run) -> None:
    run.hub.faults += [Fault("short", WEIGHTS, after=1_000_000), Fault("corrupt", WEIGHTS, None, after=2_000_000)]
    run.ends_with(Refused, "hub.digest")
    assert run.ranges() == [None, "bytes=1000000-", None]


def test_a_file_that_vanishes_midway_is_not_asked_for_again(run: Run) -> None:
    run.hub.faults += [Fault("short", WEIGHTS, after=1_000_000), Fault("status", WEIGHTS, None, status=404)]
    run.ends_with(Refused, "hub.file_missing")
    assert run.ranges() == [None, "bytes=1000000-"]


def test_more_bytes_than_listed_are_refused(run: Run) -> None:
    run.hub.faults.append(Fault("long", WEIGHTS, None))
    error = run.ends_with(Refused, "hub.too_long")
    assert isinstance(error, Refused)
    assert error.refusals[0].expected == SIZE
    assert not (run.out / f"{WEIGHTS}.partial").exists()


def test_a_wrong_etag_does_not_matter_since_the_bytes_are_hashed(run: Run) -> None:
    run.hub.faults.append(Fault("etag", WEIGHTS, None))
    run.download()
    assert run.is_whole()


def test_a_hub_that_ignores_ranges_starts_over_and_ends_right(run: Run) -> None:
    run.hub.faults += [Fault("short", WEIGHTS, after=1_000_000), Fault("no_range", WEIGHTS, None)]
    run.download()
    assert run.is_whole()
    assert run.ranges() == [None, "bytes=1000000-"]


@pytest.mark.parametrize("fault", [Fault("wrong_range", WEIGHTS), Fault("status", WEIGHTS, status=416)])
def test_a_range_that_is_answered_wrongly_is_asked_anew_from_the_start(run: Run, fault: Fault) -> None:
    run.hub.faults += [Fault("short", WEIGHTS, after=1_000_000), Fault(**vars(fault))]
    run.download()
    assert run.is_whole()
    assert run.ranges() == [None, "bytes=1000000-", None]


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
def test_server_errors_are_tried_again_with_growing_waits(run: Run, status: int) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, 3, status=status))
    run.download()
    assert run.is_whole()
    assert run.waits == [1, 2, 4]


def test_server_errors_without_end_are_temporary(run: Run) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, None, status=500))
    assert run.ends_with(Temporary, "hub.busy").exit_code == 75
    assert run.waits == [1, 2, 4, 8, 16]


def test_too_many_requests_wait_as_long_as_asked(run: Run) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, 2, status=429, headers={"Retry-After": "11"}))
    run.download()
    assert run.waits == [11, 11]


def test_a_date_to_come_back_at_is_understood(run: Run) -> None:
    when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    run.hub.faults.append(Fault("status", WEIGHTS, status=429, headers={"Retry-After": when}))
    run.download()
    assert 90 < run.waits[0] <= 100


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_file_names_the_page_and_is_not_tried_again(run: Run, status: int) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, None, status=status, headers={"X-Error-Code": "GatedRepo"}))
    error = run.ends_with(NotPermitted, "hub.gated")
    assert error.exit_code == 77
    assert f"{run.hub.endpoint}/acme/tiny" in str(error)
    assert "HF_TOKEN" in str(error)
    assert len(run.ranges()) == 1


def test_a_refused_token_is_not_permitted(hub: MisbehavingHub, tmp_path: Path) -> None:
    run = Run(hub, tmp_path / "out", CANARY)
    hub.faults.append(Fault("status", WEIGHTS, None, status=401))
    error = run.ends_with(NotPermitted, "hub.not_permitted")
    assert "the token that was given may not read it" in str(error)


def test_a_file_that_vanished_is_named_with_repository_and_revision(run: Run) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, None, status=404, headers={"X-Error-Code": "EntryNotFound"}))
    error = run.ends_with(Refused, "hub.file_missing")
    assert error.where == f"acme/tiny@{run.listing.commit}/{WEIGHTS}"


@pytest.mark.parametrize("status", [204, 304, 400, 402, 410])
def test_other_answers_are_not_those_of_a_hub(run: Run, status: int) -> None:
    run.hub.faults.append(Fault("status", WEIGHTS, None, status=status))
    run.ends_with(Unavailable, "hub.answer")


def test_redirects_in_circles_end(run: Run) -> None:
    run.hub.faults.append(Fault("redirect", WEIGHTS, None, location=""))
    run.ends_with(Unavailable, "hub.answer")


def test_the_token_goes_to_the_hub_and_not_where_the_hub_redirects_to(mirror: Path, tmp_path: Path) -> None:
    with misbehaving_hub(mirror) as hub, misbehaving_hub(mirror) as elsewhere:
        run = Run(hub, tmp_path / "out", CANARY)
        hub.faults.append(Fault("redirect", WEIGHTS, None, location=elsewhere.endpoint))
        run.download()
        assert run.is_whole()
        assert all(asked.headers["authorization"] == f"Bearer {CANARY}" for asked in hub.requests)
        (asked,) = elsewhere.requests
    assert CANARY not in str(asked)


def test_without_a_token_none_is_looked_for(
    hub: MisbehavingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    Run(hub, tmp_path / "out").download()
    asked = hub.asked_for("/revision/main") + hub.asked_for(WEIGHTS)
    assert len(asked) == 2
    assert CANARY not in str(hub.requests)


def test_the_user_agent_names_us_and_nothing_about_the_machine(
    hub: MisbehavingHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless told not to, huggingface_hub adds what it finds around it, and asks huggingface.co how to find it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", False)
    monkeypatch.setattr("huggingface_hub.utils._headers.detect_agent", lambda: "somebody")
    Run(hub, tmp_path / "out").download()
    agents = {asked.headers["user-agent"] for asked in hub.requests}
    assert all(agent.startswith("draftmill/") for agent in agents)
    assert not any("somebody" in agent for agent in agents)


def test_a_failure_stops_the_other_files_at_once(run: Run) -> None:
    run.hub.faults += [
        Fault("status", "config.json", None, status=403, headers={"X-Error-Code": "GatedRepo"}),
        Fault("stall", WEIGHTS, None, after=1_000_000),
    ]
    run.be_impatient()
    with pytest.raises(NotPermitted):
        download(run.listing, run.source, run.out)
    # By itself the stalled file would have been asked for six times, with 31 seconds of waits between them.
    assert len(run.hub.asked_for(WEIGHTS)) < 6
