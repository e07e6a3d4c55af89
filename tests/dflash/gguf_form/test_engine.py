"""llama.cpp itself loads what is written here, drafts with it, and has the drafts of a trained draft accepted."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from draftmill.dflash import names
from draftmill.dflash.checkpoint import Checkpoint
from draftmill.dflash.forward import Draft
from draftmill.dflash.geometry import Second
from draftmill.dflash.gguf_form.draft import GgufDraft
from draftmill.dflash.gguf_form.writing import write_gguf
from draftmill.dflash.inventory import Role, expected_tensors
from draftmill.dflash.package import Package
from draftmill.dflash.packing import pack
from draftmill.dflash.proposer import DFlashProposer
from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.ggml_library import load_library
from draftmill.gguf.header import map_tensor, read_header
from draftmill.gguf.metadata import Provenance
from draftmill.measurement.cross_rounds import rounds_of
from draftmill.measurement.servers.answers import Timings
from draftmill.measurement.servers.flags import Drafting, Settings
from draftmill.measurement.servers.providers import xllamacpp
from draftmill.measurement.servers.server import Server
from draftmill.q4nx.encodings import Kind
from draftmill.speculation.greedy import decode
from flows.demo.edited_gguf import Made, values, write_edited
from tests.support.checkpoints import write_safetensors
from tests.support.dflash_packages import hf_config
from tests.support.inputs import smollm2_gguf
from tests.support.smollm2_target import smollm2_target

torch = pytest.importorskip("torch", reason="torch is not installed")

from draftmill.speculation.transformers_target import TransformersTarget  # noqa: E402

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


def second(folder: Path, trained: Path) -> Path:
    """A checkpoint of generation 2 whose every part tells: the trained draft with scales, a softcap, small convolutions
    and a selector of random weights, which change many of its drafts and leave some right."""
    with Checkpoint.open(trained) as source:
        tensors = {name: source.decode(name) for name in source.tensors}
        scales = {"output_multiplier": 0.5, "final_logit_softcapping": 24.0, "input_embedding_scale": 0.9375}
        config = replace(source.config, generation=2, second=Second(2, 18, 32, 16), **scales)
    rng = np.random.default_rng(1)
    for each in expected_tensors(config, scalars=False):
        if each.name not in tensors:
            spread = {Role.CONV_KERNEL: 0.1, Role.CONV_PROJECTION: 0.003, Role.SELECTOR: 0.02, Role.CODEBOOK: 0.5}
            tensors[each.name] = np.float32(spread[each.role]) * rng.standard_normal(each.shape, np.float32)
            if each.role == Role.CONV_KERNEL:
                tensors[each.name][:, 0] += 1
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hf_config(config)))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


@pytest.mark.slow
def test_generation_2_has_the_same_rounds_in_llama_cpp_as_in_our_own_loop(
    smollm2_dflash, tmp_path, tmp_path_factory, request
):
    """Two implementations of convolutions, selector and scales that share no line, and the GGUF between them."""
    target = smollm2_target(tmp_path_factory)
    prompt = json.loads((smollm2_dflash / "acceptance.json").read_text())["prompts"][3]["prompt_ids"]
    convert_native(target, target, tmp_path / "t.gguf", outtype="f32", provenance=Provenance(name="t"))
    with Checkpoint.open(second(tmp_path / "two", smollm2_dflash)) as source:
        path = write_gguf(source, target, tmp_path / "two.gguf", outtype="f32").path
    f32 = {"cache_type_k": "f32", "cache_type_v": "f32"}
    settings = Settings(tmp_path / "t.gguf", 256, 1, Drafting(path, BLOCK - 1, 0, 0.0, "draft-dflash", **f32), **f32)
    with Server(xllamacpp(), settings, run="test") as server:
        steps = server.client.steps(prompt, BUDGET, seed=0)
    theirs = rounds_of(steps, n_max=BLOCK - 1, budget=BUDGET, passes=lambda tokens: tokens)
    own = TransformersTarget.open(target, (5, 14, 24))
    threads = own.use_threads(None)
    request.addfinalizer(lambda: own.use_threads(threads))
    own.use_threads(1)  # beside other tests, torch's threads wait for one another

    def ours(budget: int, *, swapped: bool) -> tuple[list[int], list[int]]:
        with Draft.open(path) as draft:
            if swapped:
                tensors = draft.weights.source.tensors
                a, b = names.PREDECESSOR, names.SUCCESSOR
                tensors[a], tensors[b] = tensors[b], tensors[a]
            found = decode(own, DFlashProposer(draft, own), prompt, budget=budget)
        return [each.accepted for each in found.trace.rounds], list(found.tokens)

    accepted, tokens = ours(BUDGET, swapped=False)
    # Near the budget's end the engine offers fewer, and accepts no more than it offers.
    whole = [each.accepted for each in theirs if each.offered == BLOCK - 1]
    assert len(whole) >= 8
    assert sum(whole) >= 6
    assert accepted[: len(whole)] == whole
    assert tokens == [token for step in steps for token in step.tokens]
    assert ours(4, swapped=True)[0][0] != whole[0]
