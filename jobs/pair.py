"""Job `pair`: a draft's vocabulary against those of several targets.

Inputs: draft (the outputs of `tokenizer`) and one slot a target, a folder with its tokenizer files and config.json.
Parameters: draft_rows (rows of the draft's embedding), targets (slot -> owner/repo), trained_for (owner/repo names).
Facts: pairs, as `draftmill.catalogue.pairs.Pair.as_json` gives them; not_judged (owner/repo -> why).
"""

from pathlib import Path

from draftmill.catalogue.pairs import derive_pairs
from draftmill.intake.bounded_json import read_object
from draftmill.intake.text_config import stated_rows
from draftmill.outcome import Refusal, Refused
from draftmill.tokenizers.huggingface import MAX_SIDE_BYTES, read_tokenizer
from draftmill.tokenizers.vocabulary import Vocabulary
from jobs.contract import Job, main


def work(job: Job) -> None:
    draft = read_tokenizer(job.input("draft")).padded(job.parameters["draft_rows"])
    targets: dict[str, Vocabulary] = {}
    not_judged: dict[str, str] = {}
    for slot, name in sorted(job.parameters["targets"].items()):
        try:
            targets[name] = _padded(job.input(slot), name)
        except Refused as refused:
            not_judged[name] = str(refused)
    pairs = derive_pairs(draft, targets, job.parameters["trained_for"])
    job.fact("pairs", [each.as_json() for each in pairs])
    job.fact("not_judged", not_judged)


def _padded(folder: Path, name: str) -> Vocabulary:
    """The target's vocabulary as its GGUF would have it. Raises Refused."""
    if not (folder / "tokenizer.json").is_file():
        raise Refused(
            Refusal("pair.no_tokenizer", name, None, "tokenizer.json", "Name a target that has a tokenizer.json.")
        )
    vocabulary = read_tokenizer(folder)
    path = folder / "config.json"
    config = read_object(path, path.name, MAX_SIDE_BYTES) if path.is_file() else {}
    rows = stated_rows(config)
    if type(rows) is not int or rows <= vocabulary.highest:
        raise Refused(
            Refusal(
                "pair.no_rows",
                f"{name}/config.json:vocab_size",
                rows,
                f"an integer above {vocabulary.highest}",
                "Without the rows of its embedding it is not known how many tokens the target's GGUF has.",
            )
        )
    return vocabulary.padded(rows)


if __name__ == "__main__":
    main("pair", work)
