"""Key pairs as an operator makes them: with openssl."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class KeyPair:
    private: Path
    public: Path


def key_pair(folder: Path, name: str = "sign", curve: str = "prime256v1") -> KeyPair:
    """PEM files below `folder`."""
    pair = KeyPair(folder / f"{name}.key", folder / f"{name}.pub")
    _openssl("ecparam", "-name", curve, "-genkey", "-noout", "-out", str(pair.private))
    _openssl("ec", "-in", str(pair.private), "-pubout", "-out", str(pair.public))
    return pair


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
