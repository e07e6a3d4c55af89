"""llama.cpp itself loads what is written here, drafts with it, and has the drafts of a trained draft accepted."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.geometry import Second
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.dflash.package import Package
from draftmill.dflash.packing import pack
from draftmill.gguf.ggml_library import load_library
from draftmill.gguf.header import map_tensor, read_header
from draftmill.measurement.servers.client import Timings
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import xllamacpp
from draftmill.measurement.servers.server import Server
from draftmill.q4nx.encodings import Kind
from flows.demo.edited_gguf import Made, values, write_edited
from tests.dflash.gguf_form.small import write_checkpoint
from tests.support.inputs import smollm2_gguf

_T = GGMLQuantizationType
BUDGET, BLOCK = 24, 8


def drafted(draft: Path, prompt: list[int]) -> Timings:
    """What the engine did with SmolLM2 as the target of `draft`."""
    drafting = Drafting(draft, BLOCK - 1, 0, 0.0, "draft-dflash")
    with Server(xllamacpp(), Settings(smollm2_gguf(), 256, 1, drafting), run="test") as server:
        answer = server.client.completion(prompt, BUDGET, seed=0)
        assert server.client.slots()[0].speculative is True
    return answer.timings


@pytest.fixture
def prompt(smollm2_dflash: Path) -> list[int]:
    """One that the draft does well on: 4.75 tokens a round with the target in float32, in the recording."""
    return json.loads((smollm2_dflash / "acceptance.json").read_text())["prompts"][5]["prompt_ids"]


def retyped(source: Path, out: Path, kinds: dict[str, GGMLQuantizationType]) -> Path:
    """With tensors whose names end so in other types, as ggml quantizes them."""
    header, made = read_header(source), []
    for name, tensor in header.tensors.items():
        kind, raw = tensor.type, np.asarray(map_tensor(source, tensor))
        for ending, other in kinds.items():
            if name.endswith(ending):
                kind, raw = other, load_library().quantize(other, values(source, header, name).reshape(-1))
        made.append(Made(name, tensor.shape, kind, lambda raw=raw: raw))
    write_edited(header, out, made, {})
    return out


def test_a_package_as_gguf_drafts_in_llama_cpp_in_every_type_that_it_may_have(smollm2_dflash, prompt, tmp_path) -> None:
    pack(smollm2_dflash, tmp_path / "package", Kind.Q4_1)
    with Package.open(tmp_path / "package") as package:
        made = write_gguf(package, smollm2_gguf(), tmp_path / "q4_1.gguf")
    assert all(each.exact for each in made.tensors)
    others = {"ffn_down.weight": _T.Q4_K, "blk.0.attn_q.weight": _T.F16, "blk.1.attn_q.weight": _T.Q8_0}
    path = retyped(made.path, tmp_path / "mixed.gguf", others)
    with GgufDraft.open(path) as draft:
        met = {each.met: each.count for each in draft.variants}
    assert met == {"BF16": 1, "F16": 1, "F32": 14, "Q4_1": 16, "Q4_K": 3, "Q8_0": 1}
    timings = drafted(path, prompt)
    # 24 tokens, the first of the prompt's own pass: a draft that is right half the time spares half of the rest.
    assert timings.draft_n_accepted is not None
    assert timings.draft_n_accepted >= 12


def test_generation_2_drafts_in_llama_cpp_and_weights_at_random_are_not_accepted(smollm2_dflash, prompt, tmp_path):
    sizes = {"hidden_size": 576, "vocab_size": 49152, "target_layer_ids": (5, 14, 24), "num_target_layers": 30}
    folder = write_checkpoint(tmp_path / "two", 2, **sizes, second=Second(2, 16, 32, 8), num_hidden_layers=1)
    with Checkpoint.open(folder) as source:
        made = write_gguf(source, smollm2_gguf(), tmp_path / "two.gguf")
    timings = drafted(made.path, prompt)
    assert timings.draft_n is not None
    assert timings.draft_n_accepted is not None
    assert timings.draft_n >= 7 * 15
    assert timings.draft_n_accepted <= 4
