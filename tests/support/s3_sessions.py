"""Credentials of the tests' S3 servers: the static ones, and SeaweedFS's temporary ones, also such as have ended."""

import base64
import hmac
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCESS_KEY = "draftmilltest"
SECRET_KEY = "canary-s3-secret-7d1f0c"  # searched for in everything that is written: it must appear nowhere
_ROLE = "arn:aws:iam::role/Publisher"
_SIGNING_KEY = b"signs the sessions of one test run"


def write_roles(folder: Path) -> Path:
    """One role, which may do everything, for whoever has the static credentials."""
    anybody: dict[str, Any] = {"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]}
    everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    version = {"Version": "2012-10-17"}
    roles = {
        "sts": {
            "tokenDuration": "1h",
            "maxSessionLength": "12h",
            "issuer": "tests",
            "signingKey": base64.b64encode(_SIGNING_KEY).decode(),
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "policies": [{"name": "All", "document": {**version, "Statement": [everything]}}],
        "roles": [
            {
                "roleName": "Publisher",
                "roleArn": _ROLE,
                "trustPolicy": {**version, "Statement": [anybody]},
                "attachedPolicies": ["All"],
            }
        ],
    }
    path = folder / "roles.json"
    path.write_text(json.dumps(roles))
    return path


@dataclass(frozen=True)
class Session:
    """Temporary credentials of SeaweedFS. The token is a JWT that says until when; `ended` is one that says it ended a
    minute ago, signed with the server's own key."""

    access_key: str
    secret_key: str
    token: str

    @property
    def ended(self) -> str:
        head, body, _ = self.token.split(".")
        now = int(time.time())
        claims = {**json.loads(base64.urlsafe_b64decode(body + "==")), "iat": now - 900, "nbf": now - 900}
        return self._signed(head, {**claims, "exp": now - 60})

    @property
    def signed_anew(self) -> str:
        """The control: this token with its own claims, signed here."""
        head, body, _ = self.token.split(".")
        return self._signed(head, json.loads(base64.urlsafe_b64decode(body + "==")))

    @staticmethod
    def _signed(head: str, claims: dict[str, Any]) -> str:
        said = f"{head}.{_base64url(json.dumps(claims).encode())}"
        return f"{said}.{_base64url(hmac.digest(_SIGNING_KEY, said.encode(), 'sha256'))}"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def session_of(endpoint: str) -> Session:
    """A fresh session at SeaweedFS's STS."""
    import boto3

    sts = boto3.client(
        "sts",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    given = sts.assume_role(RoleArn=_ROLE, RoleSessionName="tests", DurationSeconds=900)["Credentials"]
    return Session(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
