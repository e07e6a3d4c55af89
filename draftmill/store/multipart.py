"""A file uploaded in parts: parallel, hashed on the way, completed only when the whole is what it should be."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftmill.progress import Progress
from draftmill.store.bodies import verified

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB = 1 << 20
MOST_PARTS = 10_000  # S3's limit
THREADS = 4


def part_size_for(size: int, least: int) -> int:
    """Bytes in a part: `least`, or more (whole MiB) where S3's number of parts would not suffice."""
    return max(least, -(-size // MOST_PARTS // MIB) * MIB)


def upload(
    client: "S3Client",
    place: dict[str, Any],
    body: Path,
    sha256: str,
    *,
    size: int,
    metadata: dict[str, str],
    part_size: int,
    conditions: dict[str, Any],
    may_complete: Callable[[], bool] | None = None,
    progress: Progress,
) -> str | None:
    """Uploads `body` to place = {"Bucket", "Key"} and gives the ETag. At most THREADS + 1 parts are in memory.

    Each part carries a CRC32 (botocore computes it) that the server compares. `conditions` go to the completion
    ({"IfNoneMatch": "*"} where the server honours it); `may_complete` is asked just before it, and None returned when
    it says no. Whatever goes wrong, the upload is aborted and no object appears.
    Raises what boto3 raises, and InputOutput("store.source_differs").
    """
    upload_id = client.create_multipart_upload(**place, Metadata=metadata, ChecksumAlgorithm="CRC32")["UploadId"]
    try:
        parts: list[Any] = _send(
            client, {**place, "UploadId": upload_id}, verified(body, sha256, part_size), size, progress
        )
        if may_complete and not may_complete():
            _abort(client, place, upload_id)
            return None
        answer = client.complete_multipart_upload(
            **place, UploadId=upload_id, MultipartUpload={"Parts": parts}, **conditions
        )
        return answer["ETag"]
    except BaseException:
        _abort(client, place, upload_id)
        raise


def _abort(client: Any, place: dict[str, Any], upload_id: str) -> None:
    # What led here is the thing to tell; an upload that could not be aborted is swept a day later.
    with suppress(Exception):
        client.abort_multipart_upload(**place, UploadId=upload_id)


def _send(
    client: Any, place: dict[str, Any], pieces: Iterator[bytes], size: int, progress: Progress
) -> list[dict[str, Any]]:
    done = 0
    parts: list[dict[str, Any]] = []
    pending: deque[tuple[int, Future[Any], int]] = deque()

    def collect() -> None:
        nonlocal done
        number, future, length = pending.popleft()
        answer = future.result()
        checksum = {"ChecksumCRC32": answer["ChecksumCRC32"]} if "ChecksumCRC32" in answer else {}
        parts.append({"PartNumber": number, "ETag": answer["ETag"], **checksum})
        done += length
        progress(place["Key"], done, size)

    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for number, part in enumerate(pieces, start=1):
                pending.append(
                    (number, pool.submit(client.upload_part, **place, PartNumber=number, Body=part), len(part))
                )
                if len(pending) == THREADS:
                    collect()
            while pending:
                collect()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return parts
