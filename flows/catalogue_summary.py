"""What a catalogue run did: a row for every drafter, as JSON for programs and Markdown for people."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

LONGEST_TABLE = 200
"""Rows of the Markdown table; the JSON holds all."""


class RunRow(BaseModel):
    """ran: False where nothing changed. reason: why it ran, or why not. refusals: as `Refusal.as_json`, a catalogue's
    reason with source and would_change. code: of what broke. pairs: as `Pair.as_json`. not_judged: target -> why;
    unreached: those of them that a failure stands for, so that the next run tries again."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repo: str
    family: str | None
    route: str | None
    verdict: Literal["pass", "refused", "no verdict", "failed"]
    ran: bool
    reason: str
    sentence: str = ""
    code: str | None = None
    commit: str | None = None
    recipe: str | None = None
    refusals: tuple[dict[str, Any], ...] = ()
    manifest: str | None = None
    places: dict[str, str] = {}
    pairs: tuple[dict[str, Any], ...] = ()
    not_judged: dict[str, str] = {}
    unreached: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    download_bytes: int = 0
    job_seconds: float = 0.0

    @property
    def paired(self) -> str:
        """Targets that the vocabularies allow; off-pairs are marked."""
        fitting = [pair for pair in self.pairs if pair["verdict"] != "refused"]
        return ", ".join(pair["target"] + (" (off-pair)" if pair["off_pair"] else "") for pair in fitting)


class Summary(BaseModel):
    """started, ended: UTC. unlisted: repositories that were taken by a family's name and have no row yet."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    run: str
    started: str
    ended: str
    hub: str
    only: str | None
    rows: tuple[RunRow, ...]
    unlisted: tuple[str, ...] = ()
    places: dict[str, str] = {}

    @property
    def counts(self) -> dict[str, int]:
        """Verdict -> drafters, of those that ran."""
        found = Counter(row.verdict for row in self.rows if row.ran)
        return {verdict: found[verdict] for verdict in ("pass", "refused", "no verdict", "failed") if found[verdict]}

    @property
    def sentence(self) -> str:
        ran = sum(row.ran for row in self.rows)
        counts = ", ".join(f"{number} {verdict}" for verdict, number in self.counts.items())
        ended = f": {counts}" if ran else ""
        return f"{len(self.rows)} drafters, {len(self.rows) - ran} unchanged, {ran} ran{ended}"

    def table(self) -> list[dict[str, Any]]:
        """For the Prefect UI: what ran, and of the rest how many."""
        lines = [
            {
                "drafter": row.repo,
                "family": row.family or "",
                "verdict": row.verdict,
                "why it ran": row.reason,
                "result": row.code or row.sentence,
                "pairs with": row.paired,
                "MB": round(row.download_bytes / 1e6, 1),
                "seconds": round(row.job_seconds, 1),
            }
            for row in self.rows
            if row.ran
        ]
        return lines or [{"drafter": f"{len(self.rows)} drafters", "why it ran": "nothing changed"}]

    def markdown(self) -> str:
        lines = [f"# Catalogue run {self.run}", "", f"{self.sentence}.", ""]
        lines += [f"* {name}: {place}" for name, place in self.places.items()]
        ran = [row for row in self.rows if row.ran]
        if ran:
            lines += ["", "| drafter | family | verdict | why it ran | result |", "|---|---|---|---|---|"]
            lines += [
                f"| {row.repo} | {row.family or '?'} | {row.verdict} | {_cell(row.reason)} | {_cell(row.sentence)} |"
                for row in ran[:LONGEST_TABLE]
            ]
        if len(ran) > LONGEST_TABLE:
            lines += ["", f"{len(ran) - LONGEST_TABLE} more are in summary.json."]
        for row in ran[:LONGEST_TABLE]:
            lines += list(_details(row))
        skipped = Counter(f"{row.verdict}: {row.reason}" for row in self.rows if not row.ran)
        if skipped:
            lines += ["", "## Unchanged", ""]
            lines += [f"* {number} {_cell(what)}" for what, number in skipped.most_common(20)]
        if self.unlisted:
            lines += ["", "## Without a row in the catalogue", ""]
            lines += [f"* {repo}" for repo in self.unlisted[:LONGEST_TABLE]]
        return "\n".join(lines) + "\n"


def _details(row: RunRow) -> Iterable[str]:
    """Refusals with their source and what would change the verdict, pairs, places."""
    lines = [f"* **{each['code']}** at {each['where']}: {_cell(each['sentence'])}" for each in row.refusals]
    for at, each in reversed(list(enumerate(row.refusals, 1))):
        if each.get("would_change"):
            more = [f"  measured: {_cell(str(each['measured']))}", f"  source: {each['source']}"]
            lines[at:at] = [*more, f"  would change the verdict: {each['would_change']}"]
    if row.pairs or row.not_judged:
        lines += [f"* pairs with {row.paired or 'none of the targets'}"]
        lines += [f"* not judged against {name}: {_cell(why)}" for name, why in row.not_judged.items()]
    lines += [f"* remark: {_cell(remark)}" for remark in row.remarks]
    lines += [f"* {name}: {place}" for name, place in row.places.items()]
    return ["", f"## {row.repo}: {row.verdict}", "", *lines] if lines else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
