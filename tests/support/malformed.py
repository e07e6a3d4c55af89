"""Malformed model folders: each a sound folder with one thing spoiled, and the one code it deserves."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import pickled
from tests.support.checkpoints import write_checkpoint

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234\n"


def single(folder: Path) -> None:
    """One safetensors file, a tokenizer, a warp_model.bin and papers."""
    write_checkpoint(folder, tokenizer=None, vocab_size=64, hidden_size=32, intermediate_size=32, head_dim=8)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "Qwen2Tokenizer"}))
    (folder / "README.md").write_text("# A model\n")
    pickled.write_tensors(folder / "warp_model.bin", {"target_proj.weight": (4, 8)})


def sharded(folder: Path) -> None:
    """Three parts and their index."""
    write_checkpoint(folder, tokenizer=None, shards=3, vocab_size=64, hidden_size=32, intermediate_size=32, head_dim=8)


def sharded_without_index(folder: Path) -> None:
    sharded(folder)
    (folder / INDEX).unlink()


def donor(folder: Path) -> None:
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}, "merges": []}}))


@dataclass(frozen=True)
class FolderCase:
    """`spoil` changes a folder that `sound` made; the intake then has to refuse with `code` at `place`."""

    name: str
    code: str
    place: str
    spoil: Callable[[Path], Any]
    sound: Callable[[Path], None] = single
    role: str = "model"


def edit_json(file: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = json.loads((folder / file).read_text())
        change(content)
        (folder / file).write_text(json.dumps(content))

    return spoil


def edit_header(change: Callable[[dict[str, Any]], Any], more: bytes = b"") -> Callable[[Path], None]:
    """Changes the safetensors header and leaves the body, but for `more` bytes at its end."""

    def spoil(folder: Path) -> None:
        raw = (folder / WEIGHTS).read_bytes()
        length = int.from_bytes(raw[:8], "little")
        head = json.loads(raw[8 : 8 + length])
        change(head)
        text = json.dumps(head).encode()
        (folder / WEIGHTS).write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :] + more)

    return spoil


def edit_bytes(file: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


def write(file: str, content: bytes | str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)


def remove(file: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).unlink()


def rename(file: str, new: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / file).rename(folder / new)


def map_in_index(tensor: str, file: str) -> Callable[[Path], None]:
    return edit_json(INDEX, lambda index: index["weight_map"].update({tensor: file}))


def setting(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content.update(keys)


def dropping(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda content: content.pop(key)


def _norm(**keys: Any) -> Callable[[dict[str, Any]], None]:
    """Changes the entry of the tensor model.norm.weight: [32] of BF16, 64 bytes."""
    return lambda head: head["model.norm.weight"].update(keys)


def _begin(head: dict[str, Any]) -> int:
    return int(head["model.norm.weight"]["data_offsets"][0])


def _repeat_first_tensor(raw: bytes) -> bytes:
    length = int.from_bytes(raw[:8], "little")
    text = raw[8 : 8 + length]
    name = b'"model.norm.weight":'
    start = text.index(name)
    again = text[: start + len(name)] + text[text.index(b"{", start) :].split(b"}")[0] + b"}," + text[start:]
    return len(again).to_bytes(8, "little") + again + raw[8 + length :]


def _overlap(head: dict[str, Any]) -> None:
    begin = _begin(head)
    head["model.norm.weight"].update(shape=[33], data_offsets=[begin - 2, begin + 64])


def _hole(folder: Path) -> None:
    names = list(json.loads((folder / WEIGHTS).read_bytes()[8:].split(b"}}")[0] + b"}}"))[1:]
    edit_header(dropping(names[len(names) // 2]))(folder)


def _second_copy(folder: Path) -> None:
    """The tensors once more, as the only part of one."""
    shutil.copy(folder / WEIGHTS, folder / "model-00001-of-00001.safetensors")


def _only_pickled(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    pickled.write_tensors(folder / "pytorch_model.bin", {"embed_tokens.weight": (4, 8)})


def _both(first: Callable[[Path], Any], second: Callable[[Path], Any]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        first(folder)
        second(folder)

    return spoil


def _warp(pickle: bytes, **parts: Any) -> Callable[[Path], None]:
    """Writes warp_model.bin anew; parts: data and extra of `pickled.write_archive`."""
    return lambda folder: pickled.write_archive(folder / "warp_model.bin", pickle, **({"data": {}} | parts))


def _behind_another(raw: bytes) -> bytes:
    """An archive before the archive: the end of the file still names the second one."""
    return b"PK\x03\x04" + bytes(60) + raw


_WARP_TENSOR = pickled.dictionary({"w": pickled.tensor("FloatStorage", "0", (2, 2))})
_CALLS_SYSTEM = pickled.dictionary({"w": pickled.name("posix", "system") + b"(X\x02\x00\x00\x00idtR"})

FOLDERS = [
    FolderCase("no config", "intake.config_missing", "config.json", remove("config.json")),
    FolderCase("config cut short", "intake.json_invalid", "config.json",
        edit_bytes("config.json", lambda raw: raw[:99]),
    ),
    FolderCase("config with NaN", "intake.json_invalid", "config.json",
        edit_json("config.json", setting(eps=float("nan"))),
    ),
    FolderCase("config a list", "intake.json_not_object", "config.json", write("config.json", "[]")),
    FolderCase(
        "config with a key twice", "intake.json_duplicate_key", "config.json",
        edit_bytes("config.json", lambda raw: raw.replace(b"{", b'{"vocab_size": 1,', 1)),
    ),
    FolderCase(
        "config nested a thousand deep", "intake.json_too_deep", "config.json",
        edit_bytes("config.json", lambda raw: raw.replace(b"{", b'{"a":' + b"[" * 1000 + b"]" * 1000 + b",", 1)),
    ),
    FolderCase(
        "config nested a hundred thousand deep", "intake.json_too_deep", "config.json",
        edit_bytes("config.json", lambda raw: raw.replace(b"{", b'{"a":' + b"[" * 100000 + b"]" * 100000 + b",", 1)),
    ),
    FolderCase(
        "config of two megabytes", "intake.json_too_large", "config.json",
        edit_bytes("config.json", lambda raw: raw + b" " * (2 << 20)),
    ),
    FolderCase("config empty", "intake.file_empty", "config.json", write("config.json", "")),
    FolderCase("no architecture", "intake.architecture_missing", "architectures",
        edit_json("config.json", dropping("architectures")),
    ),
    FolderCase(
        "foreign architecture", "intake.architecture_unknown", "architectures",
        edit_json("config.json", setting(architectures=["MixtralForCausalLM"])),
    ),
    FolderCase("no hidden size", "intake.config_key_missing", "hidden_size",
        edit_json("config.json", dropping("hidden_size")),
    ),
    FolderCase("negative layers", "intake.config_size", "num_hidden_layers",
        edit_json("config.json", setting(num_hidden_layers=-2)),
    ),
    FolderCase("layers true", "intake.config_size", "num_hidden_layers",
        edit_json("config.json", setting(num_hidden_layers=True)),
    ),
    FolderCase("heads in the millions", "intake.config_size", "num_attention_heads",
        edit_json("config.json", setting(num_attention_heads=10**7)),
    ),
    FolderCase(
        "quantized checkpoint", "intake.quantized_checkpoint", "quantization_config",
        edit_json("config.json", setting(quantization_config={"quant_method": "fp8"})),
    ),
    FolderCase("vocabulary of another size", "intake.vocab_rows", "model.embed_tokens.weight",
        edit_json("config.json", setting(vocab_size=65, tie_word_embeddings=True)),
    ),
    FolderCase(
        "auto_map in config", "intake.auto_map", "config.json:auto_map",
        edit_json("config.json", setting(auto_map={"AutoModel": "other/repo--modeling.Model"})),
    ),
    FolderCase(
        "auto_map deep in the tokenizer's config", "intake.auto_map", "tokenizer_config.json:a.0.auto_map",
        edit_json("tokenizer_config.json", setting(a=[{"auto_map": {"AutoTokenizer": ["x.Y", None]}}])),
    ),
    FolderCase(
        "internal attention implementation", "intake.attention_implementation", "_attn_implementation_internal",
        edit_json("config.json", setting(_attn_implementation_internal="evil/kernel")),
    ),
    FolderCase(
        "attention implementation in a part", "intake.attention_implementation", "text_config.attn_implementation",
        edit_json("config.json", setting(text_config={"attn_implementation": "evil/kernel"})),
    ),
    FolderCase("model_file", "intake.remote_code_key", "config.json:model_file",
        edit_json("config.json", setting(model_file="run.py")),
    ),
    FolderCase("loose Python", "intake.code_file", "modeling_x.py", write("modeling_x.py", "print()")),
    FolderCase("tokenizer's JSON invalid", "intake.json_invalid", "tokenizer.json",
        write("tokenizer.json", '{"model": '),
    ),
    FolderCase("tokenizer a pointer", "intake.lfs_pointer", "tokenizer.json", write("tokenizer.json", POINTER)),
    FolderCase("no weights", "intake.weights_missing", WEIGHTS, remove(WEIGHTS)),
    FolderCase("only pickled weights", "intake.pickled_weights_only", "pytorch_model.bin", _only_pickled),
    FolderCase("weights a Git LFS pointer", "intake.lfs_pointer", WEIGHTS, write(WEIGHTS, POINTER)),
    FolderCase("weights empty", "intake.file_empty", WEIGHTS, write(WEIGHTS, b"")),
    FolderCase("weights of five bytes", "intake.header_truncated", WEIGHTS, edit_bytes(WEIGHTS, lambda raw: raw[:5])),
    FolderCase("header cut short", "intake.header_truncated", WEIGHTS, edit_bytes(WEIGHTS, lambda raw: raw[:100])),
    FolderCase("header of 2^62 bytes", "intake.header_too_large", WEIGHTS,
        edit_bytes(WEIGHTS, lambda raw: (1 << 62).to_bytes(8, "little") + raw[8:]),
    ),
    FolderCase("a web page for weights", "intake.header_too_large", WEIGHTS, write(WEIGHTS, "<!DOCTYPE html><html>")),
    FolderCase("header not an object", "intake.header_start", WEIGHTS,
        edit_bytes(WEIGHTS, lambda raw: raw[:8] + b"[" + raw[9:]),
    ),
    FolderCase("header not JSON", "intake.json_invalid", WEIGHTS,
        edit_bytes(WEIGHTS, lambda raw: raw[:9] + b"'" + raw[10:]),
    ),
    FolderCase("a tensor's name twice", "intake.json_duplicate_key", WEIGHTS,
        edit_bytes(WEIGHTS, _repeat_first_tensor),
    ),
    FolderCase("entry without a shape", "intake.entry_malformed", "model.norm.weight",
        edit_header(lambda head: head["model.norm.weight"].pop("shape")),
    ),
    FolderCase("offsets as fractions", "intake.entry_malformed", "model.norm.weight",
        edit_header(_norm(data_offsets=[0.0, 64.0])),
    ),
    FolderCase("extents negative", "intake.entry_malformed", "model.norm.weight", edit_header(_norm(shape=[-32]))),
    FolderCase("metadata of numbers", "intake.metadata_malformed", "__metadata__",
        edit_header(setting(__metadata__={"a": 1})),
    ),
    FolderCase("dtype unknown", "intake.dtype_unknown", "model.norm.weight", edit_header(_norm(dtype="Q4_K"))),
    FolderCase("shape beyond 64 bits", "intake.shape_overflow", "model.norm.weight",
        edit_header(_norm(shape=[1 << 32, 1 << 32])),
    ),
    FolderCase("shape beyond 64 bits, times zero", "intake.shape_overflow", "model.norm.weight",
        edit_header(_norm(shape=[0, 1 << 62])),
    ),
    FolderCase("offsets reversed", "intake.offsets_reversed", "model.norm.weight",
        edit_header(_norm(data_offsets=[64, 0])),
    ),
    FolderCase("span not the shape's", "intake.span_mismatch", "model.norm.weight", edit_header(_norm(shape=[31]))),
    FolderCase("tensors share bytes", "intake.tensors_overlap", "model.norm.weight", edit_header(_overlap)),
    FolderCase("bytes between tensors", "intake.body_hole", WEIGHTS, _hole),
    FolderCase("body cut short", "intake.body_truncated", WEIGHTS, edit_bytes(WEIGHTS, lambda raw: raw[:-1])),
    FolderCase("bytes after the body", "intake.body_trailing", WEIGHTS, edit_bytes(WEIGHTS, lambda raw: raw + b"\0")),
    FolderCase("integer weights", "intake.tensor_dtype", "model.norm.weight", edit_header(_norm(dtype="I16"))),
    FolderCase("part in the middle missing", "intake.shard_missing", "model-00002-of-00003",
        remove("model-00002-of-00003.safetensors"), sharded_without_index,
    ),
    FolderCase("last part missing", "intake.shard_missing", "model-00003-of-00003",
        remove("model-00003-of-00003.safetensors"), sharded_without_index,
    ),
    FolderCase("indexed part missing", "intake.shard_missing", "model-00002-of-00003",
        remove("model-00002-of-00003.safetensors"), sharded,
    ),
    FolderCase(
        "parts of two counts", "intake.shard_numbers", "model-*", sound=sharded_without_index,
        spoil=rename("model-00003-of-00003.safetensors", "model-00003-of-00004.safetensors"),
    ),
    FolderCase("an adapter beside the model", "intake.weights_unlisted", "adapter_model",
        lambda folder: shutil.copy(folder / WEIGHTS, folder / "adapter_model.safetensors"),
    ),
    FolderCase("tensors in two files", "intake.tensor_twice", "model.norm.weight", _second_copy),
    FolderCase("index without a map", "intake.index_malformed", "weight_map",
        edit_json(INDEX, dropping("weight_map")), sharded,
    ),
    FolderCase(
        "index leads out of the folder", "intake.index_path", "weight_map", sound=sharded,
        spoil=map_in_index("model.norm.weight", "../../secret.safetensors"),
    ),
    FolderCase(
        "index names a pickle", "intake.index_path", "weight_map", sound=sharded,
        spoil=map_in_index("model.norm.weight", "model.bin"),
    ),
    FolderCase(
        "index lists a tensor too many", "intake.index_tensor_missing", "ghost.weight", sound=sharded,
        spoil=map_in_index("ghost.weight", "model-00001-of-00003.safetensors"),
    ),
    FolderCase("index lists a tensor too few", "intake.index_tensor_unlisted", "model.norm.weight",
        edit_json(INDEX, lambda index: index["weight_map"].pop("model.norm.weight")), sharded,
    ),
    FolderCase("index names the wrong part", "intake.index_wrong_file", "model.norm.weight",
        map_in_index("model.norm.weight", "model-00003-of-00003.safetensors"), sharded,
    ),
    FolderCase("index of another size", "intake.index_total_size", "total_size",
        edit_json(INDEX, lambda index: index["metadata"].update(total_size=1)), sharded,
    ),
    FolderCase("a name like an option", "intake.name_not_plain", "-rf", write("-rf", "x")),
    FolderCase("a name with a line break", "intake.name_not_plain", "\n", write("a\nb", "x")),
    FolderCase("a name that is not text", "intake.name_not_plain", "\\xff",
        lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_text("x"),
    ),
    FolderCase("link out of the folder", "intake.symlink_leaves", "vocab.json",
        lambda folder: (folder / "vocab.json").symlink_to("/etc/passwd"),
    ),
    FolderCase("link to a folder", "intake.not_regular_file", "link", lambda folder: (folder / "link").symlink_to(".")),
    FolderCase("link to nothing", "intake.not_regular_file", "link",
        lambda folder: (folder / "link").symlink_to("nothing"),
    ),
    FolderCase("named pipe", "intake.not_regular_file", "pipe.json", lambda folder: os.mkfifo(folder / "pipe.json")),
    FolderCase("folders too deep", "intake.too_many_files", "d/d",
        lambda folder: (folder / "/".join("d" * 12)).mkdir(parents=True),
    ),
    FolderCase("no folder", "intake.folder_missing", "", shutil.rmtree),
    FolderCase("pickle that calls the system", "intake.pickle_global", "warp_model.bin", _warp(_CALLS_SYSTEM)),
    FolderCase("the same under another name", "intake.pickle_global", "notes.txt",
        _both(_warp(_CALLS_SYSTEM), rename("warp_model.bin", "notes.txt")),
    ),
    FolderCase("pickle with an opcode of its own", "intake.pickle_opcode", "warp_model.bin", _warp(b"\x80\x02I01\n.")),
    FolderCase("pickle cut short", "intake.pickle_malformed", "warp_model.bin",
        _warp(_WARP_TENSOR[:-9], data={"0": bytes(16)}),
    ),
    FolderCase("pickle of 17 MiB", "intake.pickle_too_large", "warp_model.bin",
        _warp(b"\x80\x02" + b"N" * (17 << 20) + b"."),
    ),
    FolderCase("pickle's storage short", "intake.pickle_storage", "data/0", _warp(_WARP_TENSOR, data={"0": bytes(15)})),
    FolderCase("archive with code", "intake.pickle_archive_entry", "warp_model.bin",
        _warp(_WARP_TENSOR, data={"0": bytes(16)}, extra={"warp_model/code/a.py": b"x"}),
    ),
    FolderCase("archive that climbs out", "intake.pickle_archive_entry", "warp_model.bin",
        _warp(_WARP_TENSOR, data={"0": bytes(16)}, extra={"warp_model/../../a": b"x"}),
    ),
    FolderCase("archive with a wrong checksum", "intake.pickle_archive", "warp_model.bin",
        edit_bytes("warp_model.bin", lambda raw: raw.replace(b"target_proj", b"target_prof")),
    ),
    FolderCase("archive behind other bytes", "intake.pickle_archive", "warp_model.bin",
        edit_bytes("warp_model.bin", _behind_another),
    ),
    FolderCase("archive cut short", "intake.pickle_archive", "warp_model.bin",
        edit_bytes("warp_model.bin", lambda raw: raw[:-30]),
    ),
    FolderCase("pickle of no known form", "intake.pickle_unknown", "warp_model.bin",
        write("warp_model.bin", b"\x80\x04N."),
    ),
    FolderCase("donor without a tokenizer", "intake.donor_without_tokenizer", "tokenizer.json",
        rename("tokenizer.json", "README.md"), donor, "donor",
    ),
]  # fmt: skip
