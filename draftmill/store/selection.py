"""Which of a publication's files are meant: all, or those of some quants with what belongs to them."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from draftmill.gguf.naming import parse_gguf_name
from draftmill.outcome import Refusal, Refused
from draftmill.store.manifest import File, Manifest


def encoding_of(file: File) -> str:
    """The encoding that a model's name states (Q4_K_M), else its name without the ending."""
    path = PurePosixPath(file.path)
    return (parse_gguf_name(path.name) or {}).get("encoding", path.stem)


def models_of(manifest: Manifest) -> tuple[File, ...]:
    return tuple(file for file in manifest.files if file.role == "model")


def select(manifest: Manifest, quants: Iterable[str] = ()) -> tuple[File, ...]:
    """Without quants every file. With them the models of these encodings (any case), and all that is no model but
    what tells of another one: licences, tokenizer, sidecars, proofs.

    Raises Refused("selection.quant") for each quant that the manifest does not promise.
    """
    wanted = {quant.casefold(): quant for quant in quants}
    if not wanted:
        return manifest.files
    models = models_of(manifest)
    known = {encoding_of(file).casefold() for file in models}
    if missing := [quant for folded, quant in wanted.items() if folded not in known]:
        there = sorted(encoding_of(file) for file in models)
        said = f"there are {', '.join(there)}" if there else "it holds no model"
        raise Refused(
            *(
                Refusal(
                    "selection.quant",
                    manifest.entry,
                    quant,
                    there,
                    f"{manifest.entry} is not published as {quant}; {said}.",
                )
                for quant in missing
            )
        )
    others = [PurePosixPath(file.path).stem for file in models if encoding_of(file).casefold() not in wanted]
    chosen = {file.path for file in models if encoding_of(file).casefold() in wanted}
    about = {
        file.path
        for file in manifest.files
        if file.role != "model"
        and not any(file.role == "evidence" and file.path.startswith(f"{stem}.") for stem in others)
    }
    return tuple(file for file in manifest.files if file.path in chosen | about)


def select_file(manifest: Manifest, path: str) -> File:
    """Raises Refused("selection.file") for a file that the manifest does not promise."""
    for file in manifest.files:
        if file.path == path:
            return file
    there = sorted(file.path for file in manifest.files)
    raise Refused(
        Refusal(
            "selection.file",
            manifest.entry,
            path,
            there,
            f"The manifest of {manifest.entry} promises no {path}; it promises {', '.join(there)}.",
        )
    )
