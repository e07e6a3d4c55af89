"""The prompts of a measurement: texts to continue, each of a kind, since acceptance depends on that above all.

A file is JSON lines, UTF-8: {"name": ..., "kind": ..., "text": ...}; a set is its files in the order given, a folder
its *.jsonl by name. `config/prompts` is the mill's own set; where it lies is the caller's business.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from draftmill.digest import sha256_json
from draftmill.intake.bounded_json import parse_object
from draftmill.intake.findings import Findings
from draftmill.outcome import Refused

SEED_QUESTION = "why-the-sky-is-blue"
"""The prompt of the figures that the project grew from."""
MOST_BYTES = 4 << 20
MOST_PROMPTS = 10_000
LONGEST_TEXT = 1 << 16
_MEMBERS = ("name", "kind", "text")
_WORD = re.compile(r"[\w.-]{1,64}")
_EXPECTED = {
    "name": ("a word", "Give up to 64 letters, digits, '.', '_' and '-'."),
    "kind": ("a word", "Give up to 64 letters, digits, '.', '_' and '-'."),
    "text": (f"1..{LONGEST_TEXT} characters", "The text is empty, or longer than any context; mend it."),
}


@dataclass(frozen=True)
class Prompt:
    """`kind` is a free word in lower case; `text` goes to the engine as it is."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class Prompts:
    """A set in the order in which it runs."""

    prompts: tuple[Prompt, ...]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of [name, kind, text] of each: any other text or order is another set."""
        return sha256_json([[prompt.name, prompt.kind, prompt.text] for prompt in self.prompts])

    @property
    def kinds(self) -> tuple[str, ...]:
        """Each kind once, by first appearance."""
        return tuple(dict.fromkeys(prompt.kind for prompt in self.prompts))

    def of(self, kind: str) -> "Prompts":
        return Prompts(tuple(prompt for prompt in self.prompts if prompt.kind == kind))

    def __len__(self) -> int:
        return len(self.prompts)


def load_prompts(places: Path | Iterable[Path]) -> Prompts:
    """Reads files, or all *.jsonl of folders.

    Kinds are free words, compared in lower case. Blank lines are passed over.
    Raises Refused with every finding, at file:line: prompts.line (not one JSON object), prompts.member (a text is
    missing, or something else is there), prompts.name, prompts.kind, prompts.text, prompts.name_twice,
    prompts.text_twice; for files or the whole: prompts.missing, prompts.too_large, prompts.too_many, prompts.none.
    OSError where a file cannot be read.
    """
    findings = Findings()
    prompts: list[Prompt] = []
    first: dict[tuple[str, str], str] = {}
    files = _files([places] if isinstance(places, Path) else list(places), findings)
    for path in files:
        for number, line in _lines(path, findings):
            where = f"{path}:{number}"
            prompt = _prompt(line, where, findings)
            if prompt is not None and not _is_repeated(prompt, where, first, findings):
                prompts.append(prompt)
        if len(prompts) > MOST_PROMPTS:
            findings.add(
                "prompts.too_many", str(path), len(prompts), MOST_PROMPTS, "Each prompt is run many times: take fewer."
            )
            break
    if not prompts and not findings:
        findings.add("prompts.none", "", 0, "one or more", "No file holds a prompt; give a .jsonl file or its folder.")
    findings.raise_if_any()
    return Prompts(tuple(prompts))


def quick(prompts: Prompts) -> Prompts:
    """One prompt: the seed's question where the set has it, else the first."""
    seed = tuple(prompt for prompt in prompts.prompts if prompt.name == SEED_QUESTION)
    return Prompts((seed or prompts.prompts)[:1])


def interleaved(prompts: Prompts) -> Prompts:
    """The same prompts with each kind spread evenly over the run, so that a drift of the machine meets all alike."""
    kinds = prompts.kinds
    many = Counter(prompt.kind for prompt in prompts.prompts)
    seen: Counter[str] = Counter()
    placed = []
    for prompt in prompts.prompts:
        placed.append(((seen[prompt.kind] + 0.5) / many[prompt.kind], kinds.index(prompt.kind), prompt))
        seen[prompt.kind] += 1
    return Prompts(tuple(prompt for *_, prompt in sorted(placed, key=lambda each: each[:2])))


def _files(places: list[Path], findings: Findings) -> list[Path]:
    files: list[Path] = []
    for place in places:
        if place.is_dir():
            files += sorted(path for path in place.glob("*.jsonl") if path.is_file())
        elif place.is_file():
            files.append(place)
        else:
            findings.add(
                "prompts.missing", str(place), "nothing", "a file or folder", "Name a .jsonl file, or a folder."
            )
    return files


def _lines(path: Path, findings: Findings) -> list[tuple[int, bytes]]:
    with path.open("rb") as file:
        raw = file.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        findings.add("prompts.too_large", str(path), path.stat().st_size, MOST_BYTES, "Take prompts out of the file.")
        return []
    return [(number, line) for number, line in enumerate(raw.split(b"\n"), 1) if line.strip()]


def _prompt(line: bytes, where: str, findings: Findings) -> Prompt | None:
    try:
        value = parse_object(line, where)
    except Refused as refused:
        measured = refused.refusals[0].measured
        findings.add("prompts.line", where, measured, "one JSON object", "Each line is one JSON object; mend this one.")
        return None
    strange = [name for name in _MEMBERS if not isinstance(value.get(name), str)] + sorted({*value} - {*_MEMBERS})
    if strange:
        sentence = "A prompt has these three texts and nothing else; mend the line."
        findings.add("prompts.member", where, strange, list(_MEMBERS), sentence)
        return None
    prompt = Prompt(value["name"], "-".join(value["kind"].casefold().split()), value["text"])
    right = {
        "name": _WORD.fullmatch(prompt.name),
        "kind": _WORD.fullmatch(prompt.kind),
        "text": prompt.text.strip() and len(prompt.text) <= LONGEST_TEXT,
    }
    for member, is_right in right.items():
        if not is_right:
            measured, expected, sentence = repr(getattr(prompt, member))[:80], *_EXPECTED[member]
            findings.add(f"prompts.{member}", where, measured, expected, sentence)
    return prompt if all(right.values()) else None


def _is_repeated(prompt: Prompt, where: str, first: dict[tuple[str, str], str], findings: Findings) -> bool:
    repeated = False
    for member in ("name", "text"):
        place = first.setdefault((member, getattr(prompt, member)), where)
        if place != where:
            repeated = True
            sentence = f"{place} has the same {member}: results are told apart by name, and a text counts once."
            findings.add(f"prompts.{member}_twice", where, getattr(prompt, member)[:80], "each once", sentence)
    return repeated
