"""The Python face: what is listed, which publication a REF means, addresses, and that it stays light."""

import hashlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from draftmill.outcome import BadConfiguration, InputOutput, Refused
from draftmill.store import Catalogue
from draftmill.store.index import update_index
from draftmill.store.interface import Store
from draftmill.store.local import LocalStore
from tests.store.conftest import fresh_url, open_s3
from tests.store.drafters import START, contents, model_name, publish_drafter, refused_row
from tests.store.samples import source
from tests.support.s3_servers import SECRET_KEY, Server

SMALL = contents(["F16", "Q4_K_M"], size=1000)
OLD, NEW = "0123456789ab" + "c" * 28, "fedcba987654" + "d" * 28


def drafter(store: Store, folder: Path, entry: str = "amd/PARD-Tiny", commit: str = OLD, **changes: Any) -> Any:
    name = f"{len(list(folder.glob('*')))}"
    return publish_drafter(
        store, folder / name, entry, files=SMALL, source=source(repo=entry, commit=commit), **changes
    )


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sources").mkdir()
    return tmp_path / "sources"


def test_the_newest_publication_is_meant_unless_a_version_is_named(store: Store, folder: Path) -> None:
    first = drafter(store, folder, day=5, recipe="aaaa" + "0" * 60)
    second = drafter(store, folder, day=9, recipe="bbbb" + "0" * 60)
    third = drafter(store, folder, commit=NEW, day=7, recipe="cccc" + "0" * 60)
    catalogue = Catalogue(store)
    expected = {
        "amd/PARD-Tiny": second,
        "PARD-Tiny": second,
        "models/amd/PARD-Tiny": second,
        "amd/PARD-Tiny@0123": second,
        f"amd/PARD-Tiny@{OLD}": second,
        "amd/PARD-Tiny@aaaa": first,
        f"amd/PARD-Tiny@{first.recipe}": first,
        "PARD-Tiny@0123456789ab-aaaa0000": first,
        "amd/PARD-Tiny@fedcba987654": third,
        f"models/amd/PARD-Tiny/{NEW[:12]}-cccc0000": third,
    }
    for ref, manifest in expected.items():
        assert catalogue.manifest(ref).key == manifest.key, ref


def test_an_unknown_name_lists_those_near_it(store: Store, folder: Path) -> None:
    drafter(store, folder, "amd/PARD-Qwen3-0.6B")
    drafter(store, folder, "amd/PARD-Falcon-1B")
    drafter(store, folder, "other/Something")
    with pytest.raises(Refused) as error:
        Catalogue(store).find("amd/PARD-Qwen3-0.6")
    assert error.value.code == "reference.unknown"
    [refusal] = error.value.refusals
    assert refusal.expected[0] == "amd/PARD-Qwen3-0.6B"
    assert "other/Something" not in refusal.sentence
    with pytest.raises(Refused, match=r"near it are .*amd/PARD-Falcon-1B"):
        Catalogue(store).find("pard-falcon-1b")
    with pytest.raises(Refused, match="among the 3 of this store"):
        Catalogue(store).find("zzz/qqq")


def test_an_empty_store_asks_whether_it_is_the_right_one(store: Store) -> None:
    with pytest.raises(Refused, match="DRAFTMILL_STORE"):
        Catalogue(store).find("amd/PARD-Tiny")


def test_an_unknown_version_lists_those_that_are_there(local: LocalStore, folder: Path) -> None:
    drafter(local, folder)
    with pytest.raises(Refused) as error:
        Catalogue(local).find("amd/PARD-Tiny@dddd")
    assert error.value.code == "reference.no_version"
    assert "amd/PARD-Tiny@0123456789ab-feedface" in str(error.value)


def test_what_may_be_two_things_is_not_guessed(local: LocalStore, folder: Path) -> None:
    drafter(local, folder, "amd/Same")
    drafter(local, folder, "other/Same")
    drafter(local, folder, "amd/Same", kind="package")
    catalogue = Catalogue(local)
    for ref, choices in {
        "Same": ["models/amd/Same", "models/other/Same", "packages/amd/Same"],
        "amd/Same": ["models/amd/Same", "packages/amd/Same"],
    }.items():
        with pytest.raises(Refused) as error:
            catalogue.find(ref)
        assert error.value.code == "reference.ambiguous"
        assert error.value.refusals[0].expected == choices
    assert catalogue.find("packages/amd/Same").kind == "package"
    drafter(local, folder, "amd/Two", commit="abcd1" + "0" * 35, recipe="1" * 64)
    drafter(local, folder, "amd/Two", commit="abcd2" + "0" * 35, recipe="2" * 64)
    with pytest.raises(Refused, match="name one of them"):
        catalogue.find("amd/Two@abcd")
    assert catalogue.find("amd/Two@abcd1").version == "abcd10000000-11111111"


@pytest.mark.parametrize("ref", ["", "a/b/c/d", "a b/c", "amd/X@main", "amd/X@ab", "../etc/passwd", "amd/", "/X"])
def test_what_is_no_reference_is_refused(local: LocalStore, ref: str) -> None:
    with pytest.raises(Refused) as error:
        Catalogue(local).find(ref)
    assert error.value.code in ("reference.form", "reference.unknown", "store.key")


def test_rows_are_filtered_by_each_column(local: LocalStore, folder: Path) -> None:
    drafter(local, folder, "amd/PARD-A")
    drafter(local, folder, "amd/PARD-A", day=2, recipe="ee" * 32)
    update_index(local, Catalogue(local).listing(fresh=True).index.rows)
    update_index(local, [refused_row(), refused_row("x/Draft", family="DFlash", targets=("Qwen/Qwen3-8B",))])
    catalogue = Catalogue(local)

    def entries(**filters: Any) -> list[str]:
        return [row.entry for row in catalogue.rows(**filters)]

    assert entries() == ["amd/Gumiho-8B", "amd/PARD-A", "x/Draft"]
    assert entries(family="pard") == ["amd/PARD-A"]
    assert entries(verdict="refused") == entries(verdict="Refused") == ["amd/Gumiho-8B", "x/Draft"]
    with pytest.raises(ValueError, match="'nonsense' is no verdict; these are: pass, refused, no verdict"):
        entries(verdict="nonsense")
    assert entries(target="qwen3-8b") == ["x/Draft"]
    assert entries(device="cpu") == []
    assert entries(family="PARD", history=True) == ["amd/PARD-A", "amd/PARD-A"]
    assert catalogue.rows(family="PARD")[0].recipe == "ee" * 32


def test_what_was_published_after_the_index_is_found_and_shown(store: Store, folder: Path) -> None:
    drafter(store, folder)
    catalogue = Catalogue(store)
    update_index(store, catalogue.listing(fresh=True).index.rows)
    late = drafter(store, folder, day=3, recipe="ab" * 32)
    assert catalogue.find("amd/PARD-Tiny").version.endswith("-abababab")
    shown = catalogue.show("amd/PARD-Tiny")
    assert shown.row.manifest == late.key
    assert shown.row.family == "PARD"
    assert [row.recipe[:8] for row in shown.history if row.recipe] == ["feedface"]


def test_what_was_refused_is_shown_with_its_reason_and_not_pulled(local: LocalStore, tmp_path: Path) -> None:
    update_index(local, [refused_row()])
    catalogue = Catalogue(local)
    shown = catalogue.show("amd/Gumiho-8B")
    assert shown.manifest is None
    assert shown.row.reason is not None and shown.row.reason.would_change == "A config.json."
    with pytest.raises(Refused) as error:
        catalogue.pull("Gumiho-8B", tmp_path / "out")
    assert error.value.code == "reference.not_published"
    assert "There is no config.json." in str(error.value)


def test_a_newer_refusal_is_shown_before_an_older_publication(local: LocalStore, folder: Path) -> None:
    drafter(local, folder)
    catalogue = Catalogue(local)
    update_index(local, catalogue.listing(fresh=True).index.rows)
    later = START.replace(year=2027)
    update_index(local, [refused_row("amd/PARD-Tiny", family="PARD", commit=NEW, created=later)])
    assert catalogue.show("amd/PARD-Tiny").row.verdict == "refused"
    assert catalogue.show("amd/PARD-Tiny@0123").row.verdict == "pass"


def test_the_evidence_is_shown_and_what_was_changed_is_not_believed(local: LocalStore, folder: Path) -> None:
    manifest = drafter(local, folder)
    catalogue = Catalogue(local)
    assert catalogue.show("amd/PARD-Tiny").evidence["proof.json"]["drafter"]["family"] == "PARD"
    Path(local.where(manifest.key_of("proof.json"))).write_text(json.dumps({"checks": []}))
    assert "is damaged" in catalogue.show("amd/PARD-Tiny").evidence["proof.json"]


def test_a_local_address_is_a_file(local: LocalStore, folder: Path) -> None:
    drafter(local, folder)
    [found] = Catalogue(local).urls("amd/PARD-Tiny", file="proof.json")
    assert found.url.startswith("file:///")
    assert found.expires_s is None
    with urllib.request.urlopen(found.url) as answer:
        assert answer.read() == SMALL["proof.json"][1]


def test_a_presigned_address_needs_no_credentials_until_it_expires(weed: Server, folder: Path) -> None:
    store = open_s3(fresh_url(weed))
    drafter(store, folder)
    catalogue = Catalogue(store)
    found = catalogue.urls("amd/PARD-Tiny", quants=["F16"], expires_s=600)
    assert {each.file.path for each in found} == set(SMALL) - {
        model_name("Q4_K_M"),
        model_name("Q4_K_M").replace(".gguf", ".check.json"),
    }
    assert SECRET_KEY not in str(found)
    [model] = [each for each in found if each.file.role == "model"]
    with urllib.request.urlopen(model.url) as answer:
        assert hashlib.sha256(answer.read()).hexdigest() == model.file.sha256
    for broken in (model.url.replace("F16", "Q4_K_M"), model.url.partition("?")[0]):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(broken)
    [brief] = catalogue.urls("amd/PARD-Tiny", file=model.file.path, expires_s=1)
    time.sleep(2.1)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(brief.url)


def test_addresses_are_given_for_promised_files_that_are_there_only(store: Store, folder: Path) -> None:
    manifest = drafter(store, folder)
    catalogue = Catalogue(store)
    with pytest.raises(Refused) as refused:
        catalogue.urls("amd/PARD-Tiny", file="../manifest.json")
    assert refused.value.code == "selection.file"
    store.delete(manifest.key_of("proof.json"))
    with pytest.raises(InputOutput) as error:
        catalogue.urls("amd/PARD-Tiny", file="proof.json")
    assert error.value.code == "store.missing"


def test_an_address_for_longer_than_seven_days_is_not_promised(weed: Server, folder: Path) -> None:
    store = open_s3(fresh_url(weed))
    drafter(store, folder)
    for seconds in (0, 7 * 24 * 3600 + 1):
        with pytest.raises(BadConfiguration, match="lasts 1 to 604800 seconds"):
            Catalogue(store).urls("amd/PARD-Tiny", expires_s=seconds)


LIGHT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("prefect", "docker", "torch", "flows", "jobs", "xllamacpp", "numba"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from pathlib import Path
from draftmill.store import Catalogue
catalogue = Catalogue.open(sys.argv[1])
assert [row.entry for row in catalogue.rows()] == ["amd/PARD-Tiny"]
catalogue.show("PARD-Tiny")
catalogue.pull("PARD-Tiny", Path(sys.argv[2]))
assert catalogue.verify(Path(sys.argv[2])).findings == ()
catalogue.urls("PARD-Tiny")
print([name for name in ("boto3", "numpy", "gguf", "tokenizers", "huggingface_hub", "rich") if name in sys.modules])
"""


def test_the_catalogue_needs_the_base_install_only_and_loads_little_of_it(
    local: LocalStore, folder: Path, tmp_path: Path
) -> None:
    drafter(local, folder)
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, local.name, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
