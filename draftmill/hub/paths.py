"""Which file names may come in: plain relative paths that mean the same on every file system."""

from collections.abc import Iterable

from draftmill.outcome import Refusal

PARTIAL = ".partial"
LONGEST = 255


def check_paths(paths: Iterable[str]) -> list[Refusal]:
    """Every finding about these paths: absolute, leaving the folder, odd characters, or the same name twice when
    upper and lower case are not told apart. Why: huggingface_hub #4086 (parent segments in names of files)."""
    findings, seen = [], dict[str, str]()
    for path in paths:
        if problem := path_problem(path):
            findings.append(
                Refusal("hub.path", path, path, "a plain path inside the folder", f"The file name {path!r} {problem}.")
            )
        elif (twin := seen.setdefault(path.casefold(), path)) is not path:
            sentence = f"{twin!r} and {path!r} are one file where upper and lower case are the same."
            findings.append(Refusal("hub.path_twice", path, [twin, path], "names that differ", sentence))
    return findings


def path_problem(path: str) -> str | None:
    """What is wrong with a path, as the end of a sentence; None when it is plain."""
    parts = path.split("/")
    if path.startswith("/") or (len(path) > 1 and path[1] == ":"):
        return "is absolute"
    if "\\" in path:
        return "holds a backslash"
    if not path.isprintable():
        return "holds a control or invisible character"
    if ".." in parts:
        return "leaves the folder"
    if any(part in ("", ".") for part in parts):
        return "has an empty part"
    if any(len(part.encode()) > LONGEST - len(PARTIAL) for part in parts):
        return "is too long"
    if path.endswith(PARTIAL):
        return f"ends with {PARTIAL}, which marks unfinished files"
    return None
