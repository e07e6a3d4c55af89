"""What the catalogue's runs know of every drafter: the newest verdict and all that it rested on.

One small object of the store, `reports/catalogue/standing.json`, one line a drafter. A plan holds it against the hub's
list and needs nothing else for what did not change. It decides what is run again and nothing more: what is published is
said by manifests and the index. Two runs at once both find their lines in it, since it is replaced conditionally.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from draftmill.outcome import Refusal, Refused
from draftmill.store.contention import until_first
from draftmill.store.interface import Store
from draftmill.store.reading import get

KEY = "reports/catalogue/standing.json"
FORMAT = 1


@dataclass(frozen=True)
class Standing:
    """verdict: pass, refused, no verdict or failed. made_of: name of a thing -> short digest (see `differences`).

    commit: of the source; family, rules: what it is, and the digest of the rules that said so; code: of the first
    refusal or of the failure; manifest: key of the publication; at: when, UTC; run: which run; size: bytes of the
    source; seconds: what its jobs took, however many of them were found in the cache. pairs: as `Pair.as_json`, with
    target, verdict and off_pair alone.

    listed: the commit that the list or the row has, where what is taken has another (a mirror without pins); files: the
    names at `commit`, of a row that is not on main, whose list has others; unreached: targets that a failure kept from
    being judged.
    """

    verdict: str
    sentence: str
    commit: str
    family: str
    route: str
    rules: str
    made_of: Mapping[str, str]
    at: str
    run: str
    recipe: str | None = None
    code: str | None = None
    manifest: str | None = None
    size: int = 0
    seconds: float = 0.0
    pairs: tuple[Mapping[str, Any], ...] = field(default=())
    listed: str = ""
    files: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()

    @property
    def seen(self) -> str:
        """The commit to hold against a list or a row's revision."""
        return self.listed or self.commit


class Standings:
    """Read whole, kept as bytes and parsed one at a time: ten thousand take ten megabytes."""

    def __init__(self, lines: dict[str, bytes], etag: str | None = None) -> None:
        self._lines = lines
        self.etag = etag

    def __len__(self) -> int:
        return len(self._lines)

    def get(self, repo: str) -> Standing | None:
        line = self._lines.get(repo)
        if line is None:
            return None
        fields: dict[str, Any] = json.loads(line)[1]
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return Standing(**fields | lists)

    def with_new(self, new: Mapping[str, Standing]) -> "Standings":
        """A line without seconds (it was published before) keeps those that are known."""
        lines = {}
        for repo, standing in new.items():
            before = None if standing.seconds else self.get(repo)
            kept = replace(standing, seconds=before.seconds) if before else standing
            lines[repo] = json.dumps([repo, asdict(kept)]).encode()
        return Standings(self._lines | lines, self.etag)

    def to_bytes(self) -> bytes:
        head = json.dumps({"format": FORMAT, "drafters": len(self._lines)}).encode()
        return b"\n".join([head, *(self._lines[repo] for repo in sorted(self._lines)), b""])


def read_standings(store: Store) -> Standings:
    """Empty where no run was yet. Raises Refused("catalogue.standing") where it is of another version."""
    head = store.head(KEY)
    if head is None:
        return Standings({})
    whole = get(store, KEY)
    try:
        first, *lines = whole.splitlines()
        known = json.loads(first)
        if known["format"] != FORMAT or known["drafters"] != len(lines):
            raise ValueError("another format")
        return Standings({line[2 : line.index(b'"', 2)].decode(): line for line in lines}, head.etag)
    except (ValueError, KeyError, TypeError):
        raise Refused(
            Refusal(
                "catalogue.standing",
                store.where(KEY),
                whole[:80].decode(errors="replace"),
                {"format": FORMAT},
                "What the catalogue's runs know was written by another version of draftmill, or is cut. Delete it: the "
                "next run looks at every drafter again and finds what is published.",
            )
        ) from None


def update_standings(
    store: Store, new: Mapping[str, Standing], pause: Callable[[float], object] = time.sleep
) -> Standings:
    """Puts lines in, whatever other runs put in meanwhile.

    Raises Temporary("store.changed") when it was changed each time, and what the store raises.
    """

    def change() -> Standings:
        changed = read_standings(store).with_new(new)
        store.replace(KEY, changed.to_bytes(), changed.etag)
        return changed

    return until_first(change, pause)


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of what is made of other things than before, in order."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
