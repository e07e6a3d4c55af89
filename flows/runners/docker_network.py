"""What network a container gets: none; for a job that downloads, as little as reaches its hub.

A hub on this host's loopback (a demo, a test) is out of a container's sight. The container then gets no network at all:
its supervisor listens on the hub's address inside, and a mounted Unix socket carries the bytes to that one address.
Any other hub is reached over the engine's bridge.
"""

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docker.types import Mount

from draftmill.outcome import BadConfiguration
from jobs.relay import serve

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
TRUST_INSIDE = "/run/certificates.pem"
RELAYS = "DRAFTMILL_RELAYS"
"""Environment variable: a folder with the same path on the host, where the flow itself runs in a container."""


@dataclass(frozen=True)
class Network:
    """mode: the engine's network mode; relay: "address:port" for the supervisor, or None."""

    mode: str = "none"
    relay: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    mounts: list[Mount] = field(default_factory=list)


@contextmanager
def network_for(parameters: dict[str, Any], *, allowed: bool, uid: int) -> Iterator[Network]:
    """The network of one container, open while it runs. Raises BadConfiguration.

    allowed: may the job use the network at all; uid: who runs inside, and may use the relay's socket.
    """
    endpoint = str(parameters.get("endpoint") or "")  # none is a mirror, which is a folder
    place = loopback_of(endpoint)
    if place and not _answers(place):
        endpoint = ""  # without a relay the job finds the same closed port inside
    if not allowed or not endpoint:
        yield Network()
    elif place is None:
        yield _bridge()
    else:
        shared = os.environ.get(RELAYS)
        with (
            tempfile.TemporaryDirectory(prefix="draftmill-relay-", dir=shared) as folder,
            _relay(place, Path(folder), uid),
        ):
            mount = Mount("/run/relay", folder, type="bind", read_only=True)
            yield Network(relay=f"{place[0]}:{place[1]}", mounts=[mount])


def loopback_of(endpoint: str) -> tuple[str, int] | None:
    """Address and port of an endpoint on this host's loopback, None for any other.

    Raises BadConfiguration for IPv6's loopback, which a container without a network has not.
    """
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    try:
        address = ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None
    if not address.is_loopback:
        return None
    if address.version == 6:
        sentence = f"A container cannot reach the hub {endpoint}: serve it on 127.0.0.1, or use --runner process."
        raise BadConfiguration(sentence, code="docker.endpoint")
    return str(address), parts.port or (443 if parts.scheme == "https" else 80)


def _answers(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return False
    return True


def _bridge() -> Network:
    """Proxies travel unless they hold a password, which `docker inspect` would show; so do the host's certificates."""
    environment = {name: os.environ[name] for name in PROXIES if "@" not in os.environ.get(name, "@")}
    bundle = next((path for name in TRUST if Path(path := os.environ.get(name, "")).is_file()), None)
    if bundle is None:
        return Network("bridge", environment=environment)
    mount = Mount(TRUST_INSIDE, str(Path(bundle).resolve()), type="bind", read_only=True)
    return Network("bridge", environment=environment | dict.fromkeys(TRUST, TRUST_INSIDE), mounts=[mount])


@contextmanager
def _relay(place: tuple[str, int], folder: Path, uid: int) -> Iterator[None]:
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        for part in (folder, path):
            if os.geteuid() == 0:
                os.chown(part, uid, uid)
        listener.listen()
        threading.Thread(target=serve, args=(listener, partial(socket.create_connection, place)), daemon=True).start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
