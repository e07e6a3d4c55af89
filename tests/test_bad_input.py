"""Bad input: each malformed folder and GGUF file is refused by its own code, and by nothing else."""

import json
import re
from pathlib import Path

import pytest

from draftmill.gguf import header
from draftmill.outcome import Refused
from jobs.contract import perform
from jobs.intake import work
from tests.support.malformed import FOLDERS, FolderCase
from tests.support.malformed_gguf import GGUFS, GGUFCase
from tests.support.raw_gguf import SOUND
from tests.support.waiting import little_work

ACTION = re.compile(
    r"\b(fetch|download|mend|remove|give|publish|write|make|convert|converts|copy|rename|complete|quantize|run|ask"
    r"|name a|put|do not trust|only models)\b",
    re.IGNORECASE,
)


def files_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    return {str(p): (s.st_size, s.st_mtime_ns, s.st_mode) for p in folder.rglob("*") for s in [p.lstat()]}


def run_intake(folder: Path, role: str, job: Path) -> dict:
    job.mkdir()
    request = {"job": "intake", "inputs": {"model": str(folder)}, "parameters": {"role": role}}
    (job / "request.json").write_text(json.dumps(request))
    perform("intake", work, job)
    return json.loads((job / "result.json").read_text())


@pytest.mark.parametrize("case", FOLDERS, ids=lambda case: case.name)
def test_a_malformed_folder_is_refused_by_its_own_code(case: FolderCase, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    case.sound(folder)
    assert run_intake(folder, case.role, tmp_path / "sound")["outcome"] == "ok"

    case.spoil(folder)
    before = files_of(folder)
    with little_work(1):
        result = run_intake(folder, case.role, tmp_path / "spoiled")
    assert {refusal["code"] for refusal in result["refusals"]} == {case.code}
    assert any(case.place in refusal["where"] for refusal in result["refusals"])
    assert all(ACTION.search(refusal["sentence"]) for refusal in result["refusals"])
    assert result["exit_code"] == 65
    assert result["outputs"] == []
    assert files_of(folder) == before


@pytest.mark.parametrize("case", GGUFS, ids=lambda case: case.name)
def test_a_malformed_gguf_is_refused_by_its_own_code(case: GGUFCase, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(SOUND.to_bytes())
    assert header.read_header(path).tensors

    path.write_bytes(case.content)
    before = files_of(tmp_path)
    with little_work(1), pytest.raises(Refused) as caught:
        header.read_header(path)
    assert {refusal.code for refusal in caught.value.refusals} == {case.code}
    assert all(refusal.where.startswith("model.gguf") for refusal in caught.value.refusals)
    assert any(case.place in refusal.where for refusal in caught.value.refusals)
    assert all(ACTION.search(refusal.sentence) for refusal in caught.value.refusals)
    assert files_of(tmp_path) == before


def test_every_code_of_the_intake_and_of_the_reader_has_its_row() -> None:
    """A check that no row proves is a check that may be dead."""
    root = Path(header.__file__).parents[1]
    readers = [root / "gguf" / f"{name}.py" for name in ("header", "header_stream", "tensor_layout")]
    sources = [*(root / "intake").glob("*.py"), *readers]
    pattern = re.compile(r'"((?:intake|gguf)\.[a-z0-9_]+)"')
    written = {code for source in sources for code in pattern.findall(source.read_text())}
    rows = {case.code for case in (*FOLDERS, *GGUFS)}
    proven_elsewhere = {"gguf.not_regular_file", "gguf.metadata_too_large"}
    assert written - rows == proven_elsewhere
