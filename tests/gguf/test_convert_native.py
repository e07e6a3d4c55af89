"""The native converter without the stock one beside it: what it refuses, what it permutes, what it leaves behind."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from gguf import GGUFReader

from draftmill.gguf.convert_native import convert_native
from draftmill.gguf.hyperparameters import Hyperparameters
from draftmill.gguf.metadata import Provenance, describe
from draftmill.gguf.tensor_names import llama3_factors
from draftmill.outcome import Refused
from tests.gguf.convert_models import SMALL, change_json, write_tiny_model
from tests.support.checkpoints import tensor_shapes, to_bf16, write_checkpoint, write_safetensors

NAME = Provenance(name="Tiny-Draft")


@pytest.fixture
def model(tmp_path):
    write_tiny_model(tmp_path / "model")
    return tmp_path / "model"


def change(folder, file, **changes):
    change_json(folder / file, **changes)


def refused(folder, tmp_path, tokenizer=None, outtype="f16"):
    """The codes of the refusal; nothing may be left where the output would be."""
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(Refused) as caught:
        convert_native(folder, tokenizer or folder, out / "x.gguf", outtype=outtype, provenance=NAME)
    assert list(out.iterdir()) == []
    return {refusal.code: refusal for refusal in caught.value.refusals}


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "convert.architecture", "architectures"),
        ({"rms_norm_eps": None}, "convert.config_key", "rms_norm_eps"),
        ({"rope_theta": None}, "convert.config_key", "rope_theta"),
        ({"head_dim": None}, "convert.config_key", "head_dim"),
        ({"num_key_value_heads": None}, "convert.config_key", "num_key_value_heads"),
        ({"vocab_size": True}, "convert.config_key", "vocab_size"),
        ({"hidden_act": "gelu"}, "convert.config_setting", "hidden_act"),
        ({"quantization_config": {"quant_method": "gptq"}}, "convert.config_setting", "quantization_config"),
        ({"use_sliding_window": True}, "convert.config_setting", "use_sliding_window"),
        ({"layer_types": ["sliding_attention"] * 2}, "convert.config_setting", "layer_types"),
        ({"partial_rotary_factor": 0.5}, "convert.config_setting", "partial_rotary_factor"),
        ({"draft_vocab_size": 32000}, "convert.config_setting", "draft_vocab_size"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "convert.rope_type", "rope_scaling.rope_type"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "convert.rope_type", "rope_scaling.rope_type"),
        ({"rope_scaling": {"rope_type": "linear"}}, "convert.config_key", "rope_scaling.factor"),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "mscale": 0.7}},
            "convert.config_setting",
            "rope_scaling.mscale",
        ),
    ],
)
def test_a_config_that_the_gguf_cannot_say_is_refused_by_key(model, tmp_path, changes, code, where):
    change(model, "config.json", **changes)
    found = refused(model, tmp_path)
    assert list(found) == [code]
    assert found[code].where == f"config.json:{where}"


def test_all_findings_of_a_config_are_listed(model, tmp_path):
    change(model, "config.json", hidden_act="gelu", rms_norm_eps=None, rope_theta=None)
    assert list(refused(model, tmp_path)) == ["convert.config_setting", "convert.config_key"]


def rewrite(folder, edit):
    """Writes the weights anew after `edit` changed the dict of tensors."""
    cfg = json.loads((folder / "config.json").read_text())
    rng = np.random.default_rng(0)
    tensors = {name: to_bf16(rng.standard_normal(shape, np.float32)) for name, shape in tensor_shapes(cfg).items()}
    edit(tensors)
    (folder / "model.safetensors").unlink()
    write_safetensors(folder / "model.safetensors", tensors)


@pytest.mark.parametrize(
    ("edit", "code", "where"),
    [
        (
            lambda t: t.update({"model.layers.0.self_attn.extra.weight": np.zeros((2, 2), np.uint16)}),
            "convert.tensor_unknown",
            "model.safetensors:model.layers.0.self_attn.extra.weight",
        ),
        (
            # gguf's map knows the name, but no qwen3 has such a part
            lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.uint16)}),
            "convert.tensor_unknown",
            "model.safetensors:model.layers.0.self_attn.q_proj.bias",
        ),
        (
            lambda t: t.update({"model.layers.2.input_layernorm.weight": np.zeros(64, np.uint16)}),
            "convert.tensor_unknown",
            "model.safetensors:model.layers.2.input_layernorm.weight",
        ),
        (lambda t: t.pop("lm_head.weight"), "convert.tensor_missing", "lm_head.weight"),
        (
            lambda t: t.pop("model.layers.1.mlp.up_proj.weight"),
            "convert.tensor_missing",
            "model.layers.1.mlp.up_proj.weight",
        ),
        (
            lambda t: t.update({"model.norm.weight": np.zeros(63, np.uint16)}),
            "convert.tensor_shape",
            "model.safetensors:model.norm.weight",
        ),
    ],
)
def test_a_tensor_too_many_too_few_or_of_another_shape_is_named(model, tmp_path, edit, code, where):
    rewrite(model, edit)
    found = refused(model, tmp_path)
    assert list(found) == [code]
    assert found[code].where == where


def test_left_over_buffers_of_old_checkpoints_are_ignored(model, tmp_path):
    rewrite(model, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(16, np.uint16)}))
    done = convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=NAME)
    assert done.tensors == len(tensor_shapes(json.loads((model / "config.json").read_text())))


@pytest.mark.parametrize(
    ("bits", "outtype"), [(0x4780, "f16"), (0x7F80, "bf16"), (0xFFC0, "f32")], ids=["65536", "infinity", "nan"]
)
def test_a_value_that_the_type_cannot_hold_is_refused_and_named(model, tmp_path, bits, outtype):
    def edit(tensors):
        tensors["model.layers.1.mlp.down_proj.weight"][63, 95] = bits

    rewrite(model, edit)
    found = refused(model, tmp_path, outtype=outtype)
    assert found["convert.not_finite"].where == "model.layers.1.mlp.down_proj.weight"


def test_a_value_beyond_f16_passes_in_bf16(model, tmp_path):
    rewrite(model, lambda t: t["lm_head.weight"].__setitem__((5, 7), 0x4780))
    convert_native(model, model, tmp_path / "x.gguf", outtype="bf16", provenance=NAME)
    head = next(t for t in GGUFReader(tmp_path / "x.gguf").tensors if t.name == "output.weight")
    assert head.data.view(np.uint16)[5, 7] == 0x4780


def test_a_tied_model_may_lack_a_head_and_an_untied_one_may_not(model, tmp_path):
    rewrite(model, lambda t: t.pop("lm_head.weight"))
    change(model, "config.json", tie_word_embeddings=True)
    convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=NAME)
    assert "output.weight" not in {t.name for t in GGUFReader(tmp_path / "x.gguf").tensors}
    change(model, "config.json", tie_word_embeddings=False)
    assert list(refused(model, tmp_path)) == ["convert.tensor_missing"]


def test_llamas_rotary_halves_are_interleaved(tmp_path):
    """Two heads of width 4: rows 0..3 of a head (halves 0,1 and 2,3) become 0,2,1,3."""
    folder = tmp_path / "llama"
    sizes = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 4, "num_hidden_layers": 1}
    cfg = write_tiny_model(folder, "LlamaForCausalLM", num_attention_heads=2, num_key_value_heads=1, **sizes)
    rows = np.repeat(np.arange(8, dtype=np.float32), 8).reshape(8, 8)
    tensors = {name: to_bf16(np.zeros(shape, np.float32)) for name, shape in tensor_shapes(cfg).items()}
    for name, count in (("q", 8), ("k", 4), ("v", 4)):
        tensors[f"model.layers.0.self_attn.{name}_proj.weight"] = to_bf16(rows[:count])
    write_safetensors(folder / "model.safetensors", tensors)
    convert_native(folder, folder, tmp_path / "x.gguf", outtype="f32", provenance=NAME)
    found = {t.name: t.data[:, 0].tolist() for t in GGUFReader(tmp_path / "x.gguf").tensors if len(t.shape) == 2}
    assert found["blk.0.attn_q.weight"] == [0, 2, 1, 3, 4, 6, 5, 7]
    assert found["blk.0.attn_k.weight"] == [0, 2, 1, 3]
    assert found["blk.0.attn_v.weight"] == [0, 1, 2, 3]


def test_llama3_scaling_keeps_short_waves_divides_long_ones_and_blends_between():
    """Head of 8, base 10000: wavelengths 2 pi times 1, 10, 100, 1000. Trained length 4000, so that waves below
    1000 are kept and those above 4000 divided by 8; none of the first three is above 1000, the last is above 4000."""
    rope = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 4000}
    sizes = dict.fromkeys(("blocks", "context", "embedding", "feed_forward", "heads", "kv_heads", "vocabulary"), 1)
    hp = Hyperparameters("llama", head_dim=8, states_head_dim=True, rms_epsilon=1e-6, tied=False, rope=rope, **sizes)
    assert llama3_factors(hp).tolist() == [1, 1, 1, 8]
    # Between: length 1256.637 = 2 * 2 pi * 100 puts the third wave at smooth = (2 - 1) / 3: 1 / ((2/3) / 8 + 1/3).
    rope["original_max_position_embeddings"] = 1256.6370614359173
    assert llama3_factors(hp).tolist() == pytest.approx([1, 1, 2.4, 8], rel=1e-6)


def test_provenance_and_pard_token_are_stated(model, tmp_path):
    change(model, "config.json", pard_token=299)
    origin = Provenance(
        name="PARD-Qwen3-0.6B",
        repo="amd/PARD-Qwen3-0.6B",
        commit="c" * 40,
        licence="apache-2.0",
        base_models=("Qwen/Qwen3-0.6B",),
        recipe="d" * 64,
    )
    convert_native(model, model, tmp_path / "x.gguf", outtype="f16", provenance=origin)
    fields = {name: field.contents() for name, field in GGUFReader(tmp_path / "x.gguf").fields.items()}
    expected = {
        "general.name": "PARD Qwen3 0.6B",
        "general.basename": "PARD-Qwen3",
        # 2 * 300 * 64 + 64 + 2 * (64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64 + 2 * 64 + 2 * 32) = 100,288
        "general.size_label": "100K",
        "general.license": "apache-2.0",
        "general.source.url": "https://huggingface.co/amd/PARD-Qwen3-0.6B",
        "general.source.huggingface.repository": "amd/PARD-Qwen3-0.6B",
        "general.base_model.count": 1,
        "general.base_model.0.repo_url": "https://huggingface.co/Qwen/Qwen3-0.6B",
        "draftmill.source.commit": "c" * 40,
        "draftmill.recipe": "d" * 64,
        "draftmill.pard_token": 299,
    }
    assert {key: fields[key] for key in expected} == expected
    assert re.fullmatch(r"native \d+\.\d+\.\d+", fields["draftmill.converter"])


def test_the_name_that_it_is_published_as_is_its_name_and_the_repository_stays_its_source():
    """A licence may rule how a published model's name begins."""
    origin = Provenance(name="Llama-PARD-3.2-1B", repo="amd/PARD-Llama-3.2-1B")
    told = describe(origin, 1_235_814_400)
    assert (told.name, told.organization) == ("Llama PARD 3.2 1B", "Amd")
    assert told.source_url == "https://huggingface.co/amd/PARD-Llama-3.2-1B"
    assert describe(origin.model_copy(update={"name": "PARD-Llama-3.2-1B"}), 1_235_814_400).name == "PARD Llama 3.2 1B"


def test_the_same_input_gives_the_same_bytes_whatever_the_threads(model, tmp_path):
    for threads in (1, 3):
        convert_native(model, model, tmp_path / f"{threads}.gguf", outtype="f16", provenance=NAME, threads=threads)
    assert (tmp_path / "1.gguf").read_bytes() == (tmp_path / "3.gguf").read_bytes()


def test_progress_ends_at_the_bytes_of_all_tensors(model, tmp_path):
    seen = []
    progress = lambda *event: seen.append(event)  # noqa: E731
    convert_native(model, model, tmp_path / "x.gguf", outtype="f32", provenance=NAME, progress=progress)
    shapes = tensor_shapes(json.loads((model / "config.json").read_text())).values()
    total = sum(4 * int(np.prod(shape)) for shape in shapes)
    assert seen[-1] == ("converting", total, total)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


@pytest.mark.slow
def test_memory_stays_far_below_the_weights(tmp_path):
    """400 MB of weights under less than 300 MB of resident memory, tokenizer and interpreter included."""
    folder = tmp_path / "model"
    write_checkpoint(folder, "Qwen3ForCausalLM", **SMALL | {"hidden_size": 640, "num_hidden_layers": 1})
    code = (
        "import sys; from pathlib import Path; from draftmill.gguf.convert_native import convert_native\n"
        "from draftmill.gguf.metadata import Provenance, describe; folder = Path(sys.argv[1])\n"
        "convert_native(folder, folder, folder / 'x.gguf', outtype='f16', provenance=Provenance(name='x'))\n"
        "print(Path('/proc/self/status').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert (folder / "model.safetensors").stat().st_size > 380e6
    # Not ru_maxrss: a child's starts at what its parent held when it forked.
    assert int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1]) * 1024 < 300e6
