"""What is looked at before a download, on a hub that is busy."""

import json
import struct
from pathlib import Path

import pytest

from draftmill.catalogue.evidence import look
from draftmill.hub.ref import Ref
from draftmill.hub.source import Hub
from draftmill.outcome import NotPermitted, Temporary
from tests.support.hub_server import Fault, misbehaving_hub, write_mirror

HEADER = {"lm_head.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    root = write_mirror(tmp_path, weights=100)
    header = json.dumps(HEADER).encode()
    (root / "acme/tiny/model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"1234")
    return root


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", "/config.json", 5, status=503),
        Fault("status", "/model.safetensors", 5, status=503),
        Fault("reset", "/config.json", 5, after=3),
    ],
)
def test_a_hub_that_answers_the_sixth_time_is_waited_for(mirror: Path, fault: Fault) -> None:
    pauses: list[float] = []
    with misbehaving_hub(mirror, fault) as hub:
        _, evidence = look(Ref("acme/tiny"), Hub(hub.endpoint), pause=pauses.append)
        assert (evidence.config, evidence.tensors) == ({"architectures": ["LlamaForCausalLM"]}, {"lm_head.weight"})
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_hub_that_stays_busy_was_asked_again_as_is_said(mirror: Path) -> None:
    pauses: list[float] = []
    with misbehaving_hub(mirror, Fault("status", "/config.json", None, status=503)) as hub:
        with pytest.raises(Temporary, match="again and again"):
            look(Ref("acme/tiny"), Hub(hub.endpoint), pause=pauses.append)
        assert len(hub.asked_for("/config.json")) == 6
    assert len(pauses) == 5


def test_what_is_not_permitted_is_not_asked_for_twice(mirror: Path) -> None:
    with misbehaving_hub(mirror, Fault("status", "/config.json", None, status=403)) as hub:
        with pytest.raises(NotPermitted):
            look(Ref("acme/tiny"), Hub(hub.endpoint), pause=lambda _: pytest.fail("waited"))
        assert len(hub.asked_for("/config.json")) == 1
