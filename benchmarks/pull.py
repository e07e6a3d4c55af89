"""How fast a pull is beside boto3's own transfer of the same object: from SeaweedFS on loopback, in one run.

python -m benchmarks.pull [--mib N] [--rounds N] [--threads N] [--folder DIR]

Arms take turns, and the order turns round from one round to the next. `pull` hashes every byte and syncs the file to
the disk; `boto3` (download_file with its own TransferConfig, and with parts of our size) does neither. A ratio is the
median over the rounds of (boto3's seconds / pull's), so that a busy minute slows both sides; the goal is 0.9 beside
either boto3.
"""

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from boto3.s3.transfer import TransferConfig

from draftmill.store.manifest import File, Licence, Manifest, Source, SourceFile
from draftmill.store.opening import open_store
from draftmill.store.partial_file import PART
from draftmill.store.publish import publish
from draftmill.store.pull import THREADS, pull
from draftmill.store.s3 import S3Store
from tests.support.s3_servers import ACCESS_KEY, SECRET_KEY, weed

MIB = 1 << 20
GOAL = 0.9
MODEL = "Bench-1B-v1.0-F16.gguf"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="size of the object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--folder", type=Path, help="where the server and the files lie; a disk, not tmpfs")
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    os.environ |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        folder = Path(scratch)
        (folder / "server").mkdir()
        with weed(folder / "server") as server:
            store = open_store(server.url)
            assert isinstance(store, S3Store)
            manifest = publish_object(store, folder / MODEL, given.mib * MIB)
            run(store, manifest, folder, given.rounds, given.threads)


def publish_object(store: S3Store, path: Path, size: int) -> Manifest:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(size // MIB):
            piece = os.urandom(MIB)
            digest.update(piece)
            file.write(piece)
    manifest = Manifest(
        kind="model",
        entry="bench/Bench",
        recipe="0" * 64,
        source=Source(
            origin="hub",
            repo="bench/Bench",
            requested_revision="main",
            commit="0" * 40,
            licence="mit",
            files=(SourceFile(path="x", size=1, sha256="0" * 64),),
        ),
        files=(File(path=MODEL, size=size, sha256=digest.hexdigest(), role="model"),),
        tools=(),
        parameters={},
        job_keys={},
        licence=Licence(id="mit"),
        can=("nothing",),
        cannot=(),
        created=datetime.now(UTC),
    )
    publish(store, {MODEL: path}, manifest)
    path.unlink()
    return manifest


def run(store: S3Store, manifest: Manifest, folder: Path, rounds: int, threads: int) -> None:
    [file] = manifest.files
    place = store.place(manifest.key_of(file.path))

    def boto3(config: TransferConfig) -> Callable[[Path], None]:
        return lambda out: store.client.download_file(
            place["Bucket"], place["Key"], str(out / file.path), Config=config
        )

    arms: dict[str, Callable[[Path], object]] = {
        "pull": lambda out: pull(store, manifest.key, out, threads=threads),
        "boto3, its own config": boto3(TransferConfig()),
        "boto3, parts of our size": boto3(TransferConfig(multipart_chunksize=PART)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    cpu: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name in list(arms)[:: 1 if number % 2 else -1]:
            out = folder / "out"
            out.mkdir()
            os.sync()
            started, worked = time.perf_counter(), time.process_time()
            arms[name](out)
            if number:  # the first round warms up server, connections and caches
                seconds[name].append(time.perf_counter() - started)
                cpu[name].append(time.process_time() - worked)
            shutil.rmtree(out)
    print(f"{file.size / 1e6:,.0f} MB, {rounds} rounds, {threads} threads, {os.cpu_count()} cores; medians")
    worst = float("inf")
    for name, times in seconds.items():
        rates = [file.size / 1e6 / value for value in times]
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times, seconds["pull"], strict=True))
        beside = "" if name == "pull" else f"; pull / this: {ratio:.2f}"
        worst = worst if name == "pull" else min(worst, ratio)
        print(
            f"  {name:25} {statistics.median(rates):5.0f} MB/s ({min(rates):.0f} to {max(rates):.0f}), "
            f"{statistics.median(cpu[name]):.2f} s of processor time{beside}"
        )
    print(f"pull / the faster boto3: {worst:.2f} (goal {GOAL}: {'met' if worst >= GOAL else 'MISSED'})")


if __name__ == "__main__":
    main()
