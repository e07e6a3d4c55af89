"""A plan over many rows of which few changed: seconds and memory, against a tenth of the rows in the same run.

python -m benchmarks.catalogue [--rows N] [--changed N]

Rows, repositories and what earlier runs knew are simulated; the list comes through the hub server, in a process of its
own and asked for the first time. Every plan is a process of its own too, so that its peak is its own.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from draftmill.catalogue.catalogue import load_catalogue
from draftmill.catalogue.standing import Standing, Standings, update_standings
from draftmill.hub.described import git_oid
from draftmill.store.opening import open_store
from flows.catalogue_order import CatalogueOrder
from flows.catalogue_planner import Planner, make_plan
from flows.routes.route import Setting, Subject, find_route

GOAL_S = 10.0
AUTHOR = "sim"
FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md")
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "spd_type": "pard", "pard_token": 151670, "vocab_size": 151936}
FAMILIES = """families:
  PARD:
    route: gguf
    names: [sim/PARD-*]
    signs:
      - config: {spd_type: pard, pard_token: (integer)}
drafters:
"""


def commit_of(number: int, version: int) -> str:
    return f"{version:020x}{number:020x}"


def name_of(number: int) -> str:
    return f"{AUTHOR}/PARD-Sim-{number:05d}-0.6B"


def write_hub(root: Path, rows: int, changed: int) -> None:
    """Pinned repositories without weights; of those that changed config.json is there, since it is read."""
    config = json.dumps(CONFIG).encode()
    for number in range(rows):
        folder = root / name_of(number)
        folder.mkdir(parents=True)
        files = [{"path": path, "size": len(config), "blob_id": git_oid(config)} for path in FILES]
        pin = {
            "repo": name_of(number),
            "requested_revision": "main",
            "commit": commit_of(number, 2 if number < changed else 1),
            "source": "hub",
            "licence": "mit",
            "files": files,
        }
        (folder / ".listing.json").write_text(json.dumps(pin))
        if number < changed:
            (folder / "config.json").write_bytes(config)


def write_catalogue(path: Path, rows: int) -> None:
    lines = [f"  {name_of(number)}:\n    family: PARD\n    licence: mit\n" for number in range(rows)]
    path.write_text(FAMILIES + "".join(lines))


def write_standings(order: CatalogueOrder, rows: int) -> None:
    """As if a run had published every drafter at its first version."""
    catalogue, store = load_catalogue(order.catalogue), open_store(order.store)
    setting = Setting(order.hub, order.store, order.work)
    planner = Planner(catalogue, Standings({}), None, setting)  # type: ignore[arg-type]
    family, route = catalogue.families["PARD"], find_route("gguf")
    new = {}
    for number in range(rows):
        repo = name_of(number)
        subject = Subject(repo, commit_of(number, 1), FILES, "PARD", family, catalogue.drafter(repo))
        recipe = route.recipe(subject, route.order(subject, setting), None)
        new[repo] = Standing(
            verdict="pass",
            sentence="published 7 files and their manifest",
            commit=subject.commit,
            family="PARD",
            route="gguf",
            rules=catalogue.rules_digest,
            made_of=planner._made_of(route, subject, recipe),
            at="2026-01-01T00:00:00Z",
            run="20260101T000000Z-000000",
            recipe=recipe.digest,
            manifest=f"models/{repo}/{subject.commit[:12]}-{recipe.digest[:8]}/manifest.json",
            size=1_500_000_000,
            seconds=120.0,
        )
    update_standings(store, new)


def peak_mb() -> float:
    """Of this process alone: getrusage's also knows the parent that it was forked from."""
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))


def plan_once(order: CatalogueOrder) -> None:
    """In a process of its own: prints what it took."""
    before = peak_mb()
    started = time.perf_counter()
    plan = make_plan(order, load_catalogue(order.catalogue), open_store(order.store))
    taken = {
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time(),
        "peak_mb": peak_mb(),
        "before_mb": before,
        "run": len(plan.items),
        "skip": len(plan.skips),
        "reasons": sorted({item.reason.split(" ")[0] for item in plan.items}),
    }
    print(json.dumps(taken))


def measure(rows: int, changed: int) -> dict:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write_hub(root / "hub", rows, changed)
        write_catalogue(root / "catalogue.yaml", rows)
        command = [sys.executable, "-m", "draftmill.hub.server", str(root / "hub"), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as hub:
            try:
                assert hub.stdout
                endpoint = re.search(r"http://[\w.:]+", hub.stdout.readline())
                assert endpoint
                order = CatalogueOrder(
                    catalogue=root / "catalogue.yaml",
                    hub=endpoint[0],
                    store=str(root / "store"),
                    work=root / "work",
                )
                write_standings(order, rows)
                arguments = [sys.executable, "-m", "benchmarks.catalogue", "--plan", order.model_dump_json()]
                done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ)
                return json.loads(done.stdout.splitlines()[-1])
            finally:
                hub.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--changed", type=int, default=10)
    parser.add_argument("--plan", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plan:
        plan_once(CatalogueOrder.model_validate_json(given.plan))
        return
    found = {}
    for rows in (given.rows // 10, given.rows):
        taken = found[rows] = measure(rows, given.changed)
        assert (taken["run"], taken["skip"]) == (given.changed, rows - given.changed), taken
        print(
            f"{rows:6d} rows, {taken['run']} run ({', '.join(taken['reasons'])}), {taken['skip']} unchanged: "
            f"{taken['seconds']:.2f} s, {taken['cpu']:.2f} s of CPU in all, peak {taken['peak_mb']:.0f} MB "
            f"({taken['before_mb']:.0f} MB before)"
        )
    few, many = found[given.rows // 10], found[given.rows]
    print(f"seconds / goal of {GOAL_S:.0f} s: {many['seconds'] / GOAL_S:.3f}")
    print(f"peak, ten times the rows / one: {many['peak_mb'] / few['peak_mb']:.3f}")


if __name__ == "__main__":
    main()
