"""How fast a pull is beside boto3's own transfer of the same object: from SeaweedFS on loopback, in one run.

python -m benchmarks.pull [--mib N] [--rounds N] [--threads N] [--folder DIR]

Arms take turns, and the order turns round from one round to the next. `pull` hashes every byte, writes it beside its
final name and syncs it to the disk; `boto3` (download_file with its own TransferConfig, and with 16 MiB parts) does
neither, so the files are also synced after it to show what that costs. The goal is 0.9 of the faster boto3.
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

    def boto3(config: TransferConfig, synced: bool) -> Callable[[Path], None]:
        def fetch(out: Path) -> None:
            store.client.download_file(place["Bucket"], place["Key"], str(out / file.path), Config=config)
            if synced:
                with (out / file.path).open("rb") as written:
                    os.fsync(written.fileno())

        return fetch

    arms: dict[str, Callable[[Path], object]] = {
        "pull": lambda out: pull(store, manifest.key, out, threads=threads),
        "boto3, its own config": boto3(TransferConfig(), synced=False),
        "boto3, 16 MiB parts": boto3(TransferConfig(multipart_chunksize=16 * MIB), synced=False),
        "boto3, its own config, synced": boto3(TransferConfig(), synced=True),
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
    rates = {name: file.size / 1e6 / statistics.median(times) for name, times in seconds.items()}
    print(f"{file.size / 1e6:,.0f} MB, {rounds} rounds, {threads} threads, {os.cpu_count()} cores; medians")
    for name, rate in rates.items():
        spread = [file.size / 1e6 / value for value in seconds[name]]
        print(
            f"  {name:32} {rate:6.0f} MB/s ({min(spread):.0f} to {max(spread):.0f})"
            f"  {statistics.median(cpu[name]):.2f} s of processor time"
        )
    best = max(rate for name, rate in rates.items() if name != "pull" and "synced" not in name)
    ratio = rates["pull"] / best
    print(f"pull / the faster boto3: {ratio:.2f} (goal {GOAL}: {'met' if ratio >= GOAL else 'MISSED'})")


if __name__ == "__main__":
    main()
