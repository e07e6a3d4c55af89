"""A canary as hub token and as S3 secret appears nowhere that outlives the run."""

import subprocess
from pathlib import Path

from tests.e2e.mill import PLAIN, MillMaker
from tests.support import s3_servers
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY

TOKEN = "hf_canaryTokenThatNobodyMaySee1"


def holding(folder: Path, secret: str) -> list[str]:
    found = subprocess.run(["grep", "-rla", "--", secret, str(folder)], capture_output=True, text=True, check=False)
    return found.stdout.splitlines()


def test_no_secret_is_left_in_logs_database_results_or_store(
    mill: MillMaker, prefect_state: Path, tmp_path: Path
) -> None:
    (tmp_path / "weed").mkdir()
    with s3_servers.weed(tmp_path / "weed") as weed:
        secrets = {"HF_TOKEN": TOKEN, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        here = mill(weed.url, **secrets)
        code, ending, err = here.run("convert", PLAIN, "--quant", "Q8_0", "--json", "--explain")
        assert code == 0, err
        refused, text, err2 = here.run("convert", "tiny/No-Such-Draft", "--explain")
        assert refused == 1
        published = weed.client().list_objects_v2(Bucket=s3_servers.BUCKET)["Contents"]
        assert any(entry["Key"].endswith("/manifest.json") for entry in published)
    for secret in (TOKEN, SECRET_KEY):
        for output in (str(ending), err, str(text), err2):
            assert secret not in output
        assert holding(here.work, secret) == []
        assert holding(prefect_state, secret) == []
        assert holding(tmp_path / "weed", secret) == []
    (tmp_path / "control").write_text(TOKEN)
    assert holding(tmp_path, TOKEN) == [str(tmp_path / "control")], "the search itself works"
