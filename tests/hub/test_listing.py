import hashlib
import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from draftmill.hub.listing import ListedFile, Listing, select, selection_of
from draftmill.hub.ref import Ref
from draftmill.hub.resolve import resolve
from draftmill.hub.source import Folder, Hub, Mirror
from draftmill.outcome import BadConfiguration, NotPermitted, Refused, Temporary, Unavailable
from tests.support.hub_server import Fault, misbehaving_hub, write_mirror

REPO = Ref(repo="acme/tiny")
# printf '{}\n' | git hash-object --stdin
EMPTY_OBJECT_BLOB = "0967ef424bce6791893e9a57bb952f80fd536e93"


def no_pause(_: float) -> None: ...


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = write_mirror(tmp_path / "mirror", weights=1000)
    (root / "acme/tiny/config.json").write_text("{}\n")
    return root


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_hub_listing_is_pinned_and_carries_sizes_digests_licence_and_origin(mirror: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        listing = resolve(REPO, Hub(hub.endpoint), "model")
    by_name = {file.path: file for file in listing.files}
    assert list(by_name) == ["README.md", "config.json", "model.safetensors"]
    assert by_name["config.json"] == ListedFile(path="config.json", size=3, blob_id=EMPTY_OBJECT_BLOB)
    weights = by_name["model.safetensors"]
    assert (weights.size, weights.sha256) == (1000, sha256(mirror / "acme/tiny/model.safetensors"))
    assert weights.blob_id != weights.sha256
    assert len(listing.commit) == 40
    assert (listing.repo, listing.requested_revision, listing.source) == ("acme/tiny", "main", "hub")
    assert (listing.licence, listing.base_models, listing.gated) == ("apache-2.0", ("acme/large",), False)


def test_the_listing_survives_its_json(mirror: Path) -> None:
    listing = resolve(REPO, Mirror(mirror), "model")
    assert Listing.model_validate(json.loads(json.dumps(listing.as_json()))) == listing


def test_a_mirror_and_a_folder_give_computed_digests_and_the_same_commit(mirror: Path) -> None:
    a = resolve(REPO, Mirror(mirror), "model")
    b = resolve(Ref(folder=mirror / "acme/tiny"), Folder(mirror / "acme/tiny"), "model")
    assert a.files == b.files
    assert a.commit == b.commit
    assert len(a.commit) == 64
    assert {file.sha256 for file in a.files} == {sha256(mirror / "acme/tiny" / file.path) for file in a.files}
    assert (a.source, a.repo, a.licence) == ("mirror", "acme/tiny", "apache-2.0")
    assert (b.source, b.repo, b.requested_revision) == ("folder", None, "")


def test_one_changed_byte_changes_the_commit_of_a_mirror(mirror: Path) -> None:
    before = resolve(REPO, Mirror(mirror), "model").commit
    weights = mirror / "acme/tiny/model.safetensors"
    weights.write_bytes(b"\xff" + weights.read_bytes()[1:])
    assert resolve(REPO, Mirror(mirror), "model").commit != before


def test_a_model_takes_weights_code_and_notices_and_leaves_the_rest_named() -> None:
    names = [
        "config.json",
        "model.safetensors",
        "warp_model.bin",
        "modeling.py",
        "NOTICE.txt",
        "USE_POLICY.md",
        "README.md",
    ]
    aside = ["flax_model.msgpack", ".gitattributes", "onnx/model.onnx", "sub/model.safetensors"]
    assert select(names + aside, "model", "x") == (sorted(names), sorted(aside))


def test_a_tokenizer_takes_no_weights() -> None:
    names = ["config.json", "tokenizer.json", "merges.txt", "LICENSE", "model.safetensors", "x.bin", "x.py"]
    taken, aside = select(names, "tokenizer", "x")
    assert taken == ["LICENSE", "config.json", "merges.txt", "tokenizer.json"]
    assert aside == ["model.safetensors", "x.bin", "x.py"]


def test_a_draft_takes_weights_and_a_mask_row_and_no_code() -> None:
    names = ["LICENSE", "config.json", "mask_embedding.pt", "model.safetensors", "model.safetensors.index.json"]
    aside = ["dflash.py", "pytorch_model.bin", "training_args.pt"]
    assert select(names + aside, "draft", "x") == (names, aside)


def test_a_repository_without_any_model_file_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        select(["data.csv"], "model", "x")
    assert refused.value.code == "hub.nothing_taken"


def test_a_name_that_leaves_the_folder_is_refused_even_where_it_would_not_be_taken() -> None:
    with pytest.raises(Refused) as refused:
        select(["config.json", "../../etc/cron.d/x", "a\\b.json", "LICENSE", "license"], "model", "x")
    assert [r.code for r in refused.value.refusals] == ["hub.path", "hub.path"]
    with pytest.raises(Refused) as refused:
        select(["LICENSE.md", "LICENSE.MD"], "model", "x")
    assert refused.value.code == "hub.path_twice"


def test_an_unknown_selection_is_a_wrong_setting() -> None:
    assert selection_of("tokenizer") == "tokenizer"
    with pytest.raises(BadConfiguration):
        selection_of("everything")


def test_a_file_without_any_digest_cannot_be_listed() -> None:
    with pytest.raises(ValidationError):
        ListedFile(path="x", size=1)


def pin(mirror: Path, **changes: object) -> Listing:
    listing = resolve(REPO, Mirror(mirror), "model").model_copy(update={"commit": "ab" * 20, **changes})
    (mirror / "acme/tiny/.listing.json").write_text(listing.model_dump_json())
    return listing


def test_a_mirrors_own_listing_pins_commit_and_digests(mirror: Path) -> None:
    pinned = pin(mirror, requested_revision="v1", licence="mit")
    for revision in ("main", "v1", "ab" * 20):
        listing = resolve(Ref("acme/tiny", revision), Mirror(mirror), "model")
        assert (listing.commit, listing.files, listing.licence) == ("ab" * 20, pinned.files, "mit")
        assert listing.requested_revision == revision


def test_a_mirror_that_differs_from_its_listing_is_refused_with_every_difference(mirror: Path) -> None:
    pin(mirror)
    (mirror / "acme/tiny/model.safetensors").write_bytes(b"short")
    (mirror / "acme/tiny/config.json").unlink()
    (mirror / "acme/tiny/extra.py").write_text("")
    with pytest.raises(Refused) as refused:
        resolve(REPO, Mirror(mirror), "model")
    assert [(r.code, r.where, r.measured) for r in refused.value.refusals] == [
        ("hub.mirror_differs", "config.json", None),
        ("hub.mirror_differs", "model.safetensors", 5),
        ("hub.mirror_unlisted", "extra.py", "extra.py"),
    ]


def test_a_tokenizer_can_be_taken_from_a_pinned_mirror_without_its_weights(mirror: Path) -> None:
    pin(mirror)
    (mirror / "acme/tiny/model.safetensors").unlink()
    assert [file.path for file in resolve(REPO, Mirror(mirror), "tokenizer").files] == ["README.md", "config.json"]


@pytest.mark.parametrize("text", ["{", '{"repo": "x"}', "[]"])
def test_a_pin_that_is_no_listing_is_refused(mirror: Path, text: str) -> None:
    (mirror / "acme/tiny/.listing.json").write_text(text)
    with pytest.raises(Refused) as refused:
        resolve(REPO, Mirror(mirror), "model")
    assert refused.value.code == "hub.pin"


def test_a_pin_about_another_repository_is_refused(mirror: Path) -> None:
    pin(mirror, repo="acme/other")
    with pytest.raises(Refused) as refused:
        resolve(REPO, Mirror(mirror), "model")
    assert refused.value.code == "hub.pin"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_mirror_has_one_revision(mirror: Path, pinned: bool) -> None:
    if pinned:
        pin(mirror)
    with pytest.raises(Refused) as refused:
        resolve(Ref("acme/tiny", "v2"), Mirror(mirror), "model")
    assert refused.value.code == "hub.revision_missing"


def test_a_repository_that_the_mirror_lacks_is_named(mirror: Path) -> None:
    with pytest.raises(Refused) as refused:
        resolve(Ref("acme/absent"), Mirror(mirror), "model")
    assert (refused.value.code, refused.value.where) == ("hub.repo_missing", "acme/absent")


def test_a_link_out_of_the_folder_is_refused_and_a_hub_caches_own_links_are_not(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "1234").write_text("{}\n")
    (snapshot / "config.json").symlink_to("../../blobs/1234")
    assert resolve(Ref(folder=snapshot), Folder(snapshot), "model").files[0].size == 3
    (snapshot / "LICENSE").symlink_to(tmp_path / "secret")
    with pytest.raises(Refused) as refused:
        resolve(Ref(folder=snapshot), Folder(snapshot), "model")
    assert (refused.value.code, refused.value.where) == ("hub.link", "LICENSE")


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling"])
def test_what_is_not_a_file_is_refused_and_never_opened(mirror: Path, kind: str) -> None:
    place = mirror / "acme/tiny/tokenizer.json"
    if kind == "folder":
        place.mkdir()
        (mirror / "acme/tiny/config.json").unlink()
        place = place.rename(mirror / "acme/tiny/config.json")
        listing = resolve(REPO, Mirror(mirror), "model")
        assert "config.json/" in listing.not_taken
        return
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("nowhere")
    with pytest.raises(Refused) as refused:
        resolve(REPO, Mirror(mirror), "model")
    assert refused.value.code == "hub.not_a_file"


@pytest.mark.parametrize(
    ("front", "licence", "bases"),
    [
        ("license: llama3.1\nbase_model:\n- a/b\n- c/d", "llama3.1", ("a/b", "c/d")),
        ("license: other\nlicense_name: amd-rail", "amd-rail", ()),
        ("license: other", "other", ()),
        ("license: [mit]", "mit", ()),
        ("license: [mit, gpl-3.0]", None, ()),
        ("license: {a: b}\nbase_model: {c: d}", None, ()),
        ("license: [unclosed", None, ()),
        ("- a list", None, ()),
        ("tags: [x]", None, ()),
    ],
)
def test_licence_and_origin_of_a_card(mirror: Path, front: str, licence: str | None, bases: tuple[str, ...]) -> None:
    (mirror / "acme/tiny/README.md").write_text(f"---\n{front}\n---\nText.\n")
    listing = resolve(REPO, Mirror(mirror), "model")
    assert (listing.licence, listing.base_models) == (licence, bases)


API = "/revision/main"


def test_a_missing_repository_and_a_missing_revision_are_told_apart(mirror: Path) -> None:
    with misbehaving_hub(mirror) as hub:
        for ref, code in ((Ref("acme/absent"), "hub.repo_missing"), (Ref("acme/tiny", "v9"), "hub.revision_missing")):
            with pytest.raises(Refused) as refused:
                resolve(ref, Hub(hub.endpoint), "model", pause=no_pause)
            assert refused.value.code == code
            assert str(ref) in str(refused.value)


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_listing_names_the_page_where_access_is_asked(mirror: Path, status: int) -> None:
    fault = Fault("status", API, None, status=status, headers={"X-Error-Code": "GatedRepo"})
    with misbehaving_hub(mirror, fault) as hub:
        with pytest.raises(NotPermitted) as error:
            resolve(REPO, Hub(hub.endpoint), "model", pause=no_pause)
        assert error.value.code == "hub.gated"
        assert f"{hub.endpoint}/acme/tiny" in str(error.value)
        assert len(hub.requests) == 1


def test_without_permission_a_private_repository_looks_missing_and_the_sentence_says_both(mirror: Path) -> None:
    fault = Fault("status", API, None, status=401, headers={"X-Error-Code": "RepoNotFound"})
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(NotPermitted, match="does not exist or is private"):
        resolve(REPO, Hub(hub.endpoint), "model", pause=no_pause)


def test_a_busy_hub_is_asked_again_after_the_time_it_names(mirror: Path) -> None:
    waits: list[float] = []
    faults = [Fault("status", API, status=429, headers={"Retry-After": "7"}), Fault("status", API, 2, status=503)]
    with misbehaving_hub(mirror, *faults) as hub:
        resolve(REPO, Hub(hub.endpoint), "model", pause=waits.append)
    assert waits == [7, 2, 4]


def test_the_hubs_own_rate_limit_header_is_honoured(mirror: Path) -> None:
    waits: list[float] = []
    with misbehaving_hub(mirror, Fault("status", API, status=429, headers={"RateLimit": '"api";r=0;t=55'})) as hub:
        resolve(REPO, Hub(hub.endpoint), "model", pause=waits.append)
    assert waits == [55]


def test_patience_ends_as_temporary(mirror: Path) -> None:
    waits: list[float] = []
    with misbehaving_hub(mirror, Fault("status", API, None, status=500)) as hub:
        with pytest.raises(Temporary) as error:
            resolve(REPO, Hub(hub.endpoint), "model", pause=waits.append)
        assert error.value.code == "hub.busy"
        assert len(hub.requests) == 6
    assert waits == [1, 2, 4, 8, 16]


def test_a_wait_longer_than_a_person_would_take_is_not_waited_for(mirror: Path) -> None:
    waits: list[float] = []
    fault = Fault("status", API, None, status=429, headers={"Retry-After": "86400"})
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(Temporary):
        resolve(REPO, Hub(hub.endpoint), "model", pause=waits.append)
    assert waits == []


def test_a_hub_that_stalls_is_given_up(mirror: Path) -> None:
    with misbehaving_hub(mirror, Fault("silence", API, None)) as hub, pytest.raises(Temporary) as error:
        resolve(REPO, Hub(hub.endpoint, stall_s=0.1), "model", pause=no_pause)
    assert error.value.code == "hub.stalled"


def test_nobody_at_the_address_is_unavailable_after_few_attempts() -> None:
    waits: list[float] = []
    with pytest.raises(Unavailable) as error:
        resolve(REPO, Hub("http://127.0.0.1:9"), "model", pause=waits.append)
    assert error.value.code == "hub.unreachable"
    assert waits == [1, 2]


ZEROS = "0" * 40


def model_info(**changes: object) -> str:
    """A hub's answer about one file, without the fields that nobody reads."""
    file = {"rfilename": "config.json", "size": 3, "blobId": ZEROS}
    return json.dumps({"id": "acme/tiny", "sha": ZEROS, "siblings": [file], **changes})


@pytest.mark.parametrize(
    "body",
    [
        "<html>captive portal</html>",
        "[]",
        "{}",
        model_info(sha="main"),
        model_info(sha=None),
        model_info(id="../x"),
        model_info(gated="perhaps"),
        model_info(siblings=[{"rfilename": "config.json"}]),
        model_info(siblings=[{"rfilename": "config.json", "size": 3}]),
        model_info(siblings=[{"rfilename": "config.json", "size": -1, "blobId": ZEROS}]),
        model_info(siblings=[{"rfilename": "config.json", "size": 3, "blobId": "abc"}]),
        model_info(siblings=[{"size": 3}]),
    ],
)
def test_an_answer_that_is_no_listing_is_not_believed(mirror: Path, body: str) -> None:
    fault = Fault("status", API, None, status=200, headers={"Content-Type": "application/json"}, body=body)
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(Unavailable) as error:
        resolve(REPO, Hub(hub.endpoint), "model", pause=no_pause)
    assert error.value.code == "hub.answer"


def test_a_listing_with_a_hostile_name_is_refused(mirror: Path) -> None:
    names = ("config.json", "../../.ssh/authorized_keys")
    body = model_info(siblings=[{"rfilename": name, "size": 1, "blobId": ZEROS} for name in names])
    fault = Fault("status", API, None, status=200, headers={"Content-Type": "application/json"}, body=body)
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(Refused) as refused:
        resolve(REPO, Hub(hub.endpoint), "model", pause=no_pause)
    assert refused.value.where == "../../.ssh/authorized_keys"


def test_a_listing_with_two_sizes_for_a_file_is_refused(mirror: Path) -> None:
    lfs = {"sha256": "0" * 64, "size": 4, "pointerSize": 120}
    body = model_info(siblings=[{"rfilename": "config.json", "size": 3, "blobId": ZEROS, "lfs": lfs}])
    fault = Fault("status", API, None, status=200, headers={"Content-Type": "application/json"}, body=body)
    with misbehaving_hub(mirror, fault) as hub, pytest.raises(Refused) as refused:
        resolve(REPO, Hub(hub.endpoint), "model", pause=no_pause)
    assert refused.value.code == "hub.two_sizes"


def test_the_answer_that_the_others_vary_is_believed(mirror: Path) -> None:
    fault = Fault("status", API, None, status=200, headers={"Content-Type": "application/json"}, body=model_info())
    with misbehaving_hub(mirror, fault) as hub:
        assert resolve(REPO, Hub(hub.endpoint), "model").commit == ZEROS
