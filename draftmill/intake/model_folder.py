"""The inspection of a model's or a tokenizer donor's folder: every finding, and the facts later jobs build on."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

from draftmill.digest import sha256_file
from draftmill.intake import pickles
from draftmill.intake.bounded_json import read_object
from draftmill.intake.config import ARCHITECTURES, DRAFTS, check_config, check_embedding, check_remote_code
from draftmill.intake.findings import Findings
from draftmill.intake.folder import VOCABULARY, Contents, list_folder
from draftmill.intake.safetensors_header import TensorEntry
from draftmill.intake.weights import check_weights
from draftmill.outcome import Refusal, Refused
from draftmill.progress import Progress, silent

Role = Literal["model", "donor", "draft"]

CONFIG_LIMIT = 1 << 20
TOKENIZER_CONFIG_LIMIT = 16 << 20
TOKENIZER_LIMIT = 256 << 20


@dataclass(frozen=True)
class CarriedPickle:
    """A pickled file that is carried by its digest and never loaded. globals as "module.name"."""

    path: str
    sha256: str
    size: int
    format: str | None
    globals: tuple[str, ...]
    tensors: tuple[pickles.PickledTensor, ...]


@dataclass(frozen=True)
class TensorSummary:
    """count of tensors, weights (elements) and bytes they hold together, and count of tensors by dtype."""

    count: int
    weights: int
    bytes: int
    dtypes: dict[str, int]


@dataclass(frozen=True)
class Intake:
    """What an inspection found. The facts hold for what could be read, also when there are findings.

    files: kind -> paths; weights_only: no tokenizer in the folder; tensors is None for a donor.
    """

    role: Role
    findings: tuple[Refusal, ...]
    architecture: str | None
    weights_only: bool
    files: dict[str, list[str]]
    pickles: tuple[CarriedPickle, ...] = ()
    tensors: TensorSummary | None = None
    config: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """JSON values, without the findings and the config itself."""
        value = asdict(self)
        return {key: value[key] for key in ("role", "architecture", "weights_only", "files", "pickles", "tensors")}

    def raise_if_refused(self) -> None:
        """Raises Refused with every finding."""
        if self.findings:
            raise Refused(*self.findings)


def inspect(folder: Path, role: Role = "model", progress: Progress = silent) -> Intake:
    """Inspects a folder without executing, unpickling or writing anything in it.

    A model needs a config, weights of a known architecture, and may lack a tokenizer; a donor needs a tokenizer,
    and its safetensors files are not looked into. A draft is a DFlash checkpoint: a model of those architectures that
    only readers of our own open, so that its config.json may have an auto_map. Raises OSError when a file cannot be
    read.
    """
    findings = Findings()
    contents = list_folder(folder, findings)
    if findings and not contents.present:
        return Intake(role, findings.refusals, None, True, {})
    texts = _read_texts(folder, contents, findings, role)
    config = texts.get("config.json", {})
    architecture, tensors = None, None
    if role != "donor":
        if "config.json" in texts:
            architecture = check_config(config, findings, DRAFTS if role == "draft" else ARCHITECTURES)
        elif "config.json" not in contents.present:
            findings.add(
                "intake.config_missing",
                "config.json",
                "absent",
                "present",
                "Without config.json nothing is known of the model; download it again in full, or ask its publisher.",
            )
        entries = check_weights(folder, contents, findings)
        if "config.json" in texts:
            check_embedding(config, {name: entry.shape for name, entry in entries.items()}, findings)
        tensors = _summarize(entries)
    weights_only = not VOCABULARY & contents.present
    if role == "donor" and weights_only:
        findings.add(
            "intake.donor_without_tokenizer",
            "tokenizer.json",
            sorted(contents.present)[:20],
            sorted(VOCABULARY),
            "The donor has no tokenizer to lend; name a repository that ships one, usually the target model's.",
        )
    carried = _carry(folder, contents, findings, progress)
    files: dict[str, list[str]] = {kind: contents.of(kind) for kind in dict.fromkeys(contents.kinds.values())}
    return Intake(role, findings.refusals, architecture, weights_only, files, carried, tensors, config)


def _read_texts(folder: Path, contents: Contents, findings: Findings, role: Role) -> dict[str, dict[str, Any]]:
    """The JSON objects that tools read, each checked for what makes tools run foreign code."""
    texts = {}
    for path in contents.kinds:
        if path.endswith("config.json"):
            limit = CONFIG_LIMIT if path == "config.json" else TOKENIZER_CONFIG_LIMIT
        elif path in ("tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json"):
            limit = TOKENIZER_LIMIT
        else:
            continue
        try:
            texts[path] = read_object(folder / path, path, limit)
        except Refused as refused:
            findings.extend(refused.refusals)
            continue
        if path.endswith("config.json"):
            check_remote_code(texts[path], path, findings, auto_map=role == "draft" and path == "config.json")
    return texts


def _carry(folder: Path, contents: Contents, findings: Findings, progress: Progress) -> tuple[CarriedPickle, ...]:
    carried = []
    paths = contents.of("pickle")
    for done, path in enumerate(paths):
        progress("pickled files", done, len(paths))
        found, wrong = pickles.scan(folder / path, path)
        findings.extend(wrong)
        digest = sha256_file(folder / path)
        carried.append(CarriedPickle(path, digest, found.size, found.format, found.globals, found.tensors))
    if paths:
        progress("pickled files", len(paths), len(paths))
    return tuple(carried)


def _summarize(entries: dict[str, TensorEntry]) -> TensorSummary:
    dtypes = Counter(entry.dtype for entry in entries.values())
    return TensorSummary(
        count=len(entries),
        weights=sum(prod(entry.shape) for entry in entries.values()),
        bytes=sum(entry.nbytes for entry in entries.values()),
        dtypes=dict(sorted(dtypes.items())),
    )
