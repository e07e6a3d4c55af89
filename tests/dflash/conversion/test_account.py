"""What a conversion says it did: of each way a tensor can go, by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from draftmill.dflash.conversion.account import How, how
from draftmill.dflash.conversion.source import open_source
from draftmill.dflash.conversion.to_gguf import measured
from draftmill.dflash.gguf_form.account import StoredTensor
from draftmill.outcome import Refused
from draftmill.q4nx.encodings import Kind
from tests.dflash.conversion.forms import SMALL, to, write_hf, write_target
from tests.support.checkpoints import write_safetensors

WAYS = [
    ("BF16", "BF16", 0.0, How.KEPT),
    ("BF16", "F32", 0.0, How.KEPT),
    ("F32", "BF16", 0.1, How.ROUNDED),
    ("Q4_1", "F32", 0.0, How.DECODED),
    ("Q4_1", "F16", 0.1, How.ROUNDED),
    ("Q4_1", "Q4_1", 0.0, How.KEPT),
    ("Q4_1", "Q4_1", 0.1, How.CODES_KEPT),
    ("Q4_K", "Q4_1", 0.0, How.CODES_KEPT),
    ("BF16", "Q4_1", 0.0, How.QUANTISED),
    ("Q4_1", "Q4_K", 0.0, How.QUANTISED_AGAIN),
    ("Q6_K", "Q4_K", 0.1, How.QUANTISED_AGAIN),
]


@pytest.mark.parametrize(("source", "target", "largest", "expected"), WAYS)
def test_each_way_has_its_name(source: str, target: str, largest: float, expected: How) -> None:
    assert how(source, target, largest) == expected


def third(folder: Path) -> Path:
    """A checkpoint of which one gain is 1 + 2^-8 + 2^-10, between the bfloat16 neighbours 1 and 1 + 2^-7."""
    from tests.support.dflash_packages import checkpoint

    values = checkpoint(folder, dtype="F32", **SMALL)
    values = {
        name: np.float32(1) * (value.view(np.uint32) & 0xFFFF0000).view(np.float32) for name, value in values.items()
    }
    values["norm.weight"][:] = 1
    values["norm.weight"][7] = 1 + 2**-8 + 2**-10
    write_safetensors(folder / "model.safetensors", values)
    return folder


def test_the_error_of_a_rounded_tensor_is_measured(tmp_path: Path) -> None:
    account = to("q4nx", third(tmp_path / "hf"), tmp_path / "p", encoding=Kind.BLOCK_BF16)
    (rounded,) = (each for each in account.tensors if each.how != How.KEPT)
    # The neighbour above is nearer: 2^-7 - 2^-8 - 2^-10 = 3 x 2^-10 away, over the root of the sum of 256 squares.
    assert (rounded.name, rounded.how) == ("norm.weight", How.ROUNDED)
    assert rounded.largest == 3 * 2**-10
    size = np.sqrt(255 + (1 + 2**-8 + 2**-10) ** 2)
    assert rounded.relative_rms == pytest.approx(3 * 2**-10 / size, rel=1e-12)
    assert account.worst == rounded
    written = json.loads((tmp_path / "p" / "conversion.json").read_text())
    assert written == account.as_json()
    assert (written["exact"], written["totals"]) == (False, {"kept": 13, "rounded": 1})


def test_the_account_names_every_file_with_its_digest(tmp_path: Path) -> None:
    import hashlib

    source = write_hf(tmp_path / "hf")
    (source / "LICENSE").write_text("terms")
    to("hf", source, tmp_path / "again")
    value = json.loads((tmp_path / "again" / "conversion.json").read_text())
    for side, folder, names in (
        ("source", source, {"config.json", "model.safetensors"}),
        ("out", tmp_path / "again", {"config.json", "model.safetensors", "LICENSE"}),
    ):
        files = {each["path"]: each for each in value[side]["files"]}
        assert files.keys() == names
        for name, each in files.items():
            data = (folder / name).read_bytes()
            assert (each["size"], each["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert value["config"]["target_layer_ids"] == [1, 5, 9]


def test_a_gguf_that_is_not_what_was_written_is_found_out(tmp_path: Path) -> None:
    """The reading again of what was written: here of another draft's file."""
    target = write_target(tmp_path / "target")
    to("gguf", write_hf(tmp_path / "one"), tmp_path / "one.gguf", target=target)
    said = StoredTensor("fc.weight", "fc.weight", "BF16", "BF16", None, 1, 0, 0.0, "")
    with open_source(write_hf(tmp_path / "two", seed=1)) as given, open_source(tmp_path / "one.gguf") as found:
        with pytest.raises(Refused) as refused:
            measured(given.tensors["fc.weight"], found.tensors["fc.weight"], said)
        assert refused.value.code == "dflash.codes_lost"
    with open_source(tmp_path / "one") as given, open_source(tmp_path / "one.gguf") as found:
        assert measured(given.tensors["fc.weight"], found.tensors["fc.weight"], said).how == How.KEPT
