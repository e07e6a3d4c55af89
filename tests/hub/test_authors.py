"""An author's repositories, through the real client from the small hub, and from a mirror's folders."""

import json
from pathlib import Path

import pytest

from draftmill.hub.authors import list_author
from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.hub.server import serve
from draftmill.hub.source import Folder, Hub, Mirror
from draftmill.outcome import BadConfiguration, MillError, NotPermitted, Temporary, Unavailable
from tests.support.hub_server import Fault, misbehaving_hub, write_mirror


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = tmp_path / "mirror"
    for name in ("acme/one", "acme/two", "acme/three", "other/four"):
        write_mirror(root, name, weights=100, licence="mit" if name.endswith("two") else "apache-2.0")
    (root / "acme" / "two" / "sub").mkdir()
    (root / "acme" / "two" / "draft.q4nx").write_bytes(b"x")
    return root


def test_a_hub_and_its_mirror_list_the_same(mirror: Path) -> None:
    with serve(mirror) as hub:
        listed = list(list_author("acme", Hub(hub.endpoint)))
        resolved = {each.repo: resolve(Ref(each.repo), Hub(hub.endpoint), "model").commit for each in listed}
    assert [each.repo for each in listed] == ["acme/one", "acme/three", "acme/two"]
    assert {each.repo: each.commit for each in listed} == resolved
    assert {each.licence for each in listed} == {"apache-2.0", "mit"}
    assert listed[2].files == ("README.md", "config.json", "draft.q4nx", "model.safetensors")
    assert listed[0].base_models == ("acme/large",)
    local = list(list_author("acme", Mirror(mirror)))
    assert [(each.repo, each.licence) for each in local] == [(each.repo, each.licence) for each in listed]
    assert local[2].files == (*listed[2].files, "sub/")


def test_an_unknown_author_has_nothing(mirror: Path) -> None:
    with serve(mirror) as hub:
        for author in ("nobody", "..", "acme/one"):
            assert list(list_author(author, Hub(hub.endpoint))) == []
    assert list(list_author("nobody", Mirror(mirror))) == []


def test_pages_are_followed_and_each_repository_comes_once(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("draftmill.hub.server.PAGE", 2)
    with misbehaving_hub(mirror) as hub:
        listed = [each.repo for each in list_author("acme", Hub(hub.endpoint))]
        pages = len(hub.asked_for("/api/models"))
    assert (listed, pages) == (["acme/one", "acme/three", "acme/two"], 2)


def test_a_pinned_repository_is_listed_with_what_its_pin_says(mirror: Path) -> None:
    pin = resolve(Ref("acme/one"), Mirror(mirror), "model").model_copy(
        update={"commit": "cd" * 20, "licence": "gemma", "gated": "manual"}
    )
    (mirror / "acme/one/.listing.json").write_text(json.dumps(pin.as_json()))
    with serve(mirror) as hub:
        listed = next(iter(list_author("acme", Hub(hub.endpoint))))
    assert (listed.commit, listed.licence, listed.gated) == ("cd" * 20, "gemma", "manual")


def test_what_is_not_understood_is_refused_and_not_ignored(mirror: Path) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    with serve(mirror) as hub, pytest.raises(HfHubHTTPError):
        list(HfApi(endpoint=hub.endpoint, token=False).list_models(author="acme", search="one"))


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault("status", "/api/models", None, status=401), NotPermitted),
        (Fault("status", "/api/models", None, status=404), MillError),
        (Fault("status", "/api/models", None, status=200, body="[1]"), Unavailable),
        (Fault("status", "/api/models", None, status=200, body='[{"id": "a/b"}]'), Unavailable),
        (Fault("status", "/api/models", None, status=200, body="<html>"), Unavailable),
        (Fault("status", "/api/models", None, status=400), Unavailable),
    ],
)
def test_a_list_that_fails_ends_as_a_sentence(mirror: Path, fault: Fault, outcome: type[MillError]) -> None:
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(outcome):
        list(list_author("acme", Hub(hub.endpoint)))


def test_a_busy_hub_is_temporary_and_an_absent_one_unavailable(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import _http

    monkeypatch.setattr(_http.time, "sleep", lambda _: None)
    with (
        misbehaving_hub(mirror, Fault("status", "/api/models", None, status=503)) as hub,
        pytest.raises(Temporary),
    ):
        list(list_author("acme", Hub(hub.endpoint)))
    with pytest.raises(Unavailable):
        list(list_author("acme", Hub("http://127.0.0.1:9")))


def test_a_models_own_folder_lists_nobody(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration):
        list(list_author("acme", Folder(tmp_path)))
