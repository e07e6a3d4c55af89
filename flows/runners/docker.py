"""Jobs in containers: the same module and the same result as a plain process, with less that it can reach.

docker_container.py says what a container is given, docker_devices.py what more for a device, docker_network.py which
network, docker_engine.py how one that was left behind is found.

The dead-man pipe: standard input is attached before the start with StdinOnce, and jobs/supervisor.py inside ends the
job when it closes. The engine closes it when our connection goes, so no container outlives a runner that is killed.
Secrets travel down that pipe and become files on a memory mount: on the host nothing is written that could stay
behind, and neither `docker inspect` nor an image ever holds them.
"""

import json
import os
import stat
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from docker.errors import APIError, ImageNotFound
from docker.utils.socket import STDERR, frames_iter
from requests.exceptions import RequestException

from draftmill.measurement.device.profiles import Device
from draftmill.outcome import BadConfiguration, InputOutput, Unavailable
from draftmill.whole_file import write_whole
from flows.images import Image, image_for
from flows.runners.docker_container import Plan, create
from flows.runners.docker_devices import passthrough_for
from flows.runners.docker_engine import LABEL, connect, labels_of, remove, sweep
from flows.runners.docker_network import network_for
from flows.runners.endings import Ending, read_result, stopped
from flows.runners.lines import LineEvents
from flows.runners.runner import Events, Limits
from jobs.contract import Request, Result

UID = 65532
"""Whom a job runs as when we are root: a number that owns nothing."""
GRACE_S = 5.0
"""How much later than the supervisor we end a job that is past its deadline, and the sweep later still."""


class DockerRunner:
    """Needs an engine on this host, since folders are named to it by their paths here. Raises Unavailable.

    run: what the labels of its containers say. device: what its measure and preflight jobs are given. images: which
    image a job with such parameters runs in.
    """

    name = "docker"

    def __init__(
        self,
        *,
        run: str | None = None,
        images: Callable[[str, dict[str, Any]], Image] = image_for,
        device: Device | None = None,
    ) -> None:
        self._client = connect()
        self._run = run or uuid.uuid4().hex
        self._images = images
        self._device = device
        self.swept = sweep(self._client)
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        label = f"{LABEL}run={self._run}"
        for container in self._client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
            remove(container)

    def code_digest(self, job: str, parameters: dict[str, Any]) -> str:
        """The ID of the image that would run. Raises BadConfiguration when it is not built."""
        return self._image_id(self._images(job, parameters))

    def run(
        self,
        job: str,
        folder: Path,
        *,
        inputs: dict[str, Path],
        parameters: dict[str, Any],
        secrets: dict[str, Path],
        limits: Limits,
        events: Events,
    ) -> Result:
        if self._stopped:
            return stopped(job)
        image = self._image_id(self._images(job, parameters))
        passthrough = passthrough_for(self._device, job)
        uid, gid = (UID, UID) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        for source in inputs.values():
            _check_readable(source, uid)
        request = Request(
            job=job,
            inputs={slot: Path("/in") / slot for slot in inputs},
            parameters=parameters,
            secrets={name: Path("/run/secrets") / name for name in secrets},
        )
        write_whole(folder / "request.json", request.model_dump_json(indent=1))
        (folder / "result.json").unlink(missing_ok=True)
        handed = json.dumps({name: path.read_text() for name, path in secrets.items()}) + "\n" if secrets else ""
        with _owned_by(folder, uid, gid), network_for(parameters, allowed=limits.network, uid=uid) as network:
            plan = Plan(
                image=image,
                job=job,
                folder=folder,
                inputs=inputs,
                limits=limits,
                network=network,
                uid=uid,
                gid=gid,
                with_secrets=bool(secrets),
                labels=labels_of(
                    run=self._run, job=job, device=passthrough.device, lives_s=limits.timeout_s + 4 * GRACE_S
                ),
                device=passthrough,
            )
            try:
                ending = self._contain(plan, handed, events)
            except (APIError, RequestException) as error:
                # `stop` removes the container, of which the engine then knows nothing.
                if self._stopped:
                    return stopped(job)
                raise Unavailable(f"The Docker engine did not run {job}: {error}", code="docker.engine") from error
        if self._stopped:
            return stopped(job)
        return read_result(job, folder, ending, limits)

    def _image_id(self, image: Image) -> str:
        try:
            return str(self._client.images.get(image.tag).id)
        except ImageNotFound as error:
            sentence = f"The image {image.tag} is not there; build it: draftmill images build {image.name}"
            raise BadConfiguration(sentence, code="docker.no_image") from error

    def _contain(self, plan: Plan, handed: str, events: Events) -> Ending:
        container = self._client.containers.get(create(self._client.api, plan))
        try:
            # One that was made after `stop` had looked for containers would not be removed by it.
            if self._stopped:
                return Ending()
            return self._follow(str(container.id), handed, plan.limits, events)
        finally:
            remove(container)

    def _follow(self, container: str, handed: str, limits: Limits, events: Events) -> Ending:
        """Attaches, starts, hands over the secrets, and reads what the job prints until it ends."""
        api = self._client.api
        stream = api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        ending = Ending()

        def end() -> None:
            ending.timed_out = True
            with suppress(APIError):  # it has just ended
                api.kill(container)

        deadline = threading.Timer(limits.timeout_s + GRACE_S, end)
        deadline.daemon = True
        out, err = LineEvents(events, structured=True), LineEvents(events, structured=False)
        try:
            api.start(container)
            deadline.start()
            with suppress(BrokenPipeError):  # gone already; how it ended says why
                stream._sock.sendall(handed.encode())
            for kind, data in frames_iter(stream, tty=False):
                (err if kind == STDERR else out).feed(data)
            out.close()
            err.close()
            ending.code = api.wait(container)["StatusCode"]
        finally:
            deadline.cancel()
            stream.close()
        # An event apart from the exit: the kernel may have killed a child and left the job to end with 0.
        ending.out_of_memory = api.inspect_container(container)["State"]["OOMKilled"]
        return ending


@contextmanager
def _owned_by(folder: Path, uid: int, gid: int) -> Iterator[None]:
    """The job folder belongs to who runs inside while the job runs, then to its owner again."""
    if os.geteuid() != 0:
        yield
        return
    before = folder.stat()
    _give(folder, uid, gid)
    try:
        yield
    finally:
        _give(folder, before.st_uid, before.st_gid)


def _give(folder: Path, uid: int, gid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid, follow_symlinks=False)


def _check_readable(source: Path, uid: int) -> None:
    """Raises InputOutput for a file that the job would not see or, without our rights, could not read."""
    root = source.resolve()
    for path in (root, *root.rglob("*")):
        if path.is_symlink() and (path.readlink().is_absolute() or not path.resolve().is_relative_to(root)):
            sentence = (
                f"{path} is a link to a place outside its folder, which a container does not see: copy it (cp -rL)."
            )
            raise InputOutput(sentence, code="docker.link", where=str(path))
        found = path.lstat()
        needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(found.st_mode) else 0)
        if os.geteuid() == 0 and found.st_uid != uid and found.st_mode & needed != needed:
            sentence = f"{path} cannot be read by other users, and the job runs as user {uid}: chmod o+rX it."
            raise InputOutput(sentence, code="docker.unreadable", where=str(path))
