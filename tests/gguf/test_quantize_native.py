import os
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from draftmill.gguf.ggml_library import load_library
from draftmill.gguf.mixes import MIXES
from draftmill.gguf.quantize_native import quantize_native
from draftmill.outcome import Refused
from tests.gguf.quantize_models import write_model, write_smollm2
from tests.support.stock import llama_quantize

MODELS = {
    "qwen3-256-untied-gqa2": {"layers": 8, "vocab": 3000},
    "qwen3-1024-gqa2-bf16": {"hidden": 1024, "heads": 16, "kv_heads": 8, "layers": 1, "ffn": 768, "dtype": "BF16"},
    "qwen3-80-layers": {"layers": 80, "heads": 8, "kv_heads": 1, "head": 32, "ffn": 256, "tied": True},
    "qwen2-896-gqa7": {"architecture": "qwen2", "hidden": 896, "heads": 14, "kv_heads": 2, "layers": 2, "ffn": 512},
    "qwen2-256-16-layers-gqa8": {"architecture": "qwen2", "layers": 16, "heads": 8, "kv_heads": 1, "head": 32},
    "qwen2-80-layers-gqa8": {
        "architecture": "qwen2", "layers": 80, "heads": 8, "kv_heads": 1, "head": 32, "ffn": 256, "tied": True,
    },
    "llama-576-tied-gqa3": {
        "architecture": "llama", "hidden": 576, "heads": 9, "kv_heads": 3, "ffn": 1536, "layers": 5, "tied": True,
    },
    "llama-256-tied-gqa4-f32": {
        "architecture": "llama", "heads": 4, "kv_heads": 1, "layers": 9, "tied": True, "dtype": "F32",
    },
    "llama-256-gqa1": {"architecture": "llama", "heads": 4, "kv_heads": 4, "layers": 2},
    "llama-80-layers-gqa8": {
        "architecture": "llama", "layers": 80, "heads": 8, "kv_heads": 1, "head": 32, "ffn": 256,
    },
    "llama-528-no-block-divides": {
        "architecture": "llama", "hidden": 528, "heads": 4, "kv_heads": 2, "head": 60, "ffn": 300, "dtype": "BF16",
    },
}  # fmt: skip


def stock(source: Path, target: Path, kind: str) -> str:
    """What llama-quantize printed."""
    done = subprocess.run(
        [*llama_quantize(), source, target, kind, "2"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-1000:]
    return done.stdout + done.stderr


def assert_same_file(ours: Path, theirs: Path) -> None:
    """Whole files; where they differ, the tensors that do are named."""
    if ours.read_bytes() != theirs.read_bytes():
        pairs = zip(gguf.GGUFReader(ours).tensors, gguf.GGUFReader(theirs).tensors, strict=True)
        wrong = [(a.name, b.name, a.tensor_type, b.tensor_type) for a, b in pairs if facts(a) != facts(b)]
        pytest.fail(f"files differ; tensors that do: {wrong}")


def facts(tensor: gguf.ReaderTensor) -> tuple[str, int, int, bytes]:
    return tensor.name, tensor.tensor_type, tensor.data_offset, tensor.data.tobytes()


@pytest.mark.stock
@pytest.mark.parametrize("model", MODELS)
def test_all_types_give_the_file_that_llama_quantize_writes(tmp_path, model):
    source = tmp_path / "source.gguf"
    write_model(source, **MODELS[model])
    head = "token_embd.weight" if MODELS[model].get("tied") else "output.weight"
    # What only 80 layers show is in this mix.
    for kind in ["Q4_K_M"] if MODELS[model].get("layers") == 80 else MIXES:
        theirs, ours = tmp_path / f"stock-{kind}.gguf", tmp_path / f"{kind}.gguf"
        printed = stock(source, theirs, kind)
        done = quantize_native(source, ours, kind)
        assert_same_file(ours, theirs)
        told, announced = {f.tensor for f in done.fallbacks}, set(re.findall(r"(\S+)\s+- ncols", printed))
        # Where a K type's block does not divide the head's rows the tool takes Q8_0 at once and says nothing.
        assert announced <= told <= announced | {head}


@pytest.mark.stock
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q4_K_M", "Q5_K_M", "Q6_K", "Q4_0", "Q8_0"])
def test_real_weights_give_the_file_that_llama_quantize_writes(smollm2_f16, tmp_path, kind):
    stock(smollm2_f16, tmp_path / "stock.gguf", kind)
    quantize_native(smollm2_f16, tmp_path / "native.gguf", kind)
    assert_same_file(tmp_path / "native.gguf", tmp_path / "stock.gguf")


@pytest.fixture(scope="module")
def smollm2_f16(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("smollm2") / "smollm2-f16.gguf"
    write_smollm2(path)
    return path


def test_threads_and_kernels_do_not_change_the_bytes(tmp_path):
    source = tmp_path / "source.gguf"
    write_model(source, vocab=5000)
    quantize_native(source, tmp_path / "a.gguf", "Q4_K_M", threads=1, fast=False)
    quantize_native(source, tmp_path / "b.gguf", "Q4_K_M", threads=3)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_what_was_done_is_told(tmp_path):
    write_model(tmp_path / "s.gguf", layers=8)
    seen = []
    done = quantize_native(
        tmp_path / "s.gguf",
        tmp_path / "t.gguf",
        "Q4_K_M",
        progress=lambda what, at, total: seen.append((what, at, total)),
    )
    assert done.types["output.weight"] == "Q6_K" and done.types["blk.1.attn_v.weight"] == "Q4_K"
    assert done.fallbacks == () and done.fast == ("Q4_K", "Q6_K")
    assert [at for _, at, _ in seen] == sorted(at for _, at, _ in seen)
    assert seen[0][0] == "output.weight" and seen[-1][1] == seen[-1][2]
    keys = gguf.GGUFReader(tmp_path / "t.gguf").fields
    assert keys["general.file_type"].contents() == 15 and keys["general.name"].contents() == "tiny"


def refused(tmp_path: Path, kind: str = "Q4_K_M", source: str = "s.gguf") -> list[str]:
    """Codes of the refusal; nothing may be left beside the source."""
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(Refused) as caught:
        quantize_native(tmp_path / source, tmp_path / "out.gguf", kind)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    return [f"{refusal.code} {refusal.where}" for refusal in caught.value.refusals]


@pytest.mark.parametrize("kind", ["IQ2_XXS", "Q3_K_M", "q4_k_m", ""])
def test_types_that_are_not_made_natively_are_refused(tmp_path, kind):
    write_model(tmp_path / "s.gguf")
    assert refused(tmp_path, kind) == ["quantize.type_unknown type"]


def test_quantized_input_is_refused_tensor_by_tensor(tmp_path):
    write_model(tmp_path / "f16.gguf", layers=1)
    quantize_native(tmp_path / "f16.gguf", tmp_path / "s.gguf", "Q8_0")
    codes = refused(tmp_path)
    assert len(codes) == 9 and codes[0] == "quantize.requantizing s.gguf: output.weight"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["blk.1.ffn_up.weight", "output_norm.weight"])
def test_values_that_are_not_finite_are_refused_with_their_place(tmp_path, name, value):
    weights = np.zeros((512, 256) if "ffn" in name else 256, np.float32)
    weights.flat[77] = value
    write_model(tmp_path / "s.gguf", replace={name: weights})
    assert refused(tmp_path) == [f"quantize.not_finite {name}[77]"]


def test_finite_values_that_a_type_cannot_hold_are_refused(tmp_path):
    weights = np.zeros((512, 256), np.float32)
    weights[3, 5] = 1e12
    write_model(tmp_path / "s.gguf", dtype="F32", replace={"blk.1.ffn_up.weight": weights})
    for kind in ("Q4_K_M", "Q8_0", "Q4_0", "F16"):
        assert refused(tmp_path, kind) == ["quantize.out_of_range blk.1.ffn_up.weight"]
    quantize_native(tmp_path / "s.gguf", tmp_path / "out.gguf", "BF16")


def write_odd(path: Path, architecture: str = "llama", tensor: str = "token_embd.weight", **keys: int) -> None:
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in keys.items():
        writer.add_uint32(key.replace("__", "."), value)
    writer.add_tensor(tensor, np.zeros((4, 256), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("model", "codes"),
    [
        ({"architecture": "mamba"}, ["quantize.architecture_unknown s.gguf: general.architecture"]),
        ({}, ["quantize.block_count s.gguf: llama.block_count"]),
        ({"llama__block_count": 1, "split__count": 2}, ["quantize.split s.gguf: split.count"]),
        (
            {"llama__block_count": 1, "tensor": "blk.0.ffn_gate_exps.weight"},
            ["quantize.tensor_unknown s.gguf: blk.0.ffn_gate_exps.weight"],
        ),
        (
            {"split__count": 2, "tensor": "x"},
            [
                "quantize.block_count s.gguf: llama.block_count",
                "quantize.split s.gguf: split.count",
                "quantize.tensor_unknown s.gguf: x",
            ],
        ),
    ],
)
def test_files_that_the_rule_does_not_cover_are_refused_with_all_findings(tmp_path, model, codes):
    write_odd(tmp_path / "s.gguf", **model)
    assert refused(tmp_path) == codes


def test_a_plain_file_of_one_tensor_is_quantized(tmp_path):
    write_odd(tmp_path / "s.gguf", llama__block_count=1)
    assert quantize_native(tmp_path / "s.gguf", tmp_path / "t.gguf", "Q4_K_M").types == {"token_embd.weight": "Q6_K"}


def test_a_file_that_is_cut_short_after_its_header_was_read_leaves_nothing(tmp_path, monkeypatch):
    write_model(tmp_path / "s.gguf")
    from draftmill.gguf import quantize_native as module

    def read_then_cut(path: Path):
        header = whole(path)
        os.truncate(path, header.size - 40000)
        return header

    whole = module.read_header
    monkeypatch.setattr(module, "read_header", read_then_cut)
    with pytest.raises(OSError, match="the file ended"):
        quantize_native(tmp_path / "s.gguf", tmp_path / "t.gguf", "Q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["s.gguf"]


def test_memory_stays_below_500_mb_with_a_matrix_of_151936_by_1024(tmp_path):
    source = tmp_path / "s.gguf"
    writer = gguf.GGUFWriter(source, "llama")
    writer.add_block_count(1)
    writer.add_tensor_info("token_embd.weight", (151936, 1024), np.dtype(np.float16), 151936 * 1024 * 2)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(source, -(-source.stat().st_size // 32) * 32 + 151936 * 1024 * 2)
    program = (
        "import sys; from pathlib import Path\n"
        "from draftmill.gguf.quantize_native import quantize_native\n"
        "quantize_native(Path(sys.argv[1]), Path(sys.argv[2]), 'Q8_0')\n"
        "quantize_native(Path(sys.argv[1]), Path(sys.argv[2]), 'Q4_K_M')\n"
        "print(Path('/proc/self/status').read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, source, tmp_path / "t.gguf"], stdout=subprocess.PIPE, text=True, check=True
    )
    # Not ru_maxrss: a child's starts at what its parent held when it forked.
    assert int(re.search(r"VmHWM:\s+(\d+) kB", done.stdout)[1]) * 1024 < 500e6
    assert not np.fromfile(tmp_path / "t.gguf", np.uint8)[-210 * 100 :].any()


def test_the_library_is_known_by_version_and_digest():
    library = load_library()
    assert library.version.startswith("2026.10.11549 (ggml ") and len(library.digest()) == 64


def test_float32_values_must_fill_blocks():
    with pytest.raises(ValueError, match="blocks of 32"):
        load_library().quantize(gguf.GGMLQuantizationType.Q8_0, np.zeros(33, np.float32))
