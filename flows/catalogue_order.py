"""What a catalogue run is asked, as the value that crosses the flow's border."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from flows.defaults import catalogue_path, hub_field, runner_field, store_field, work_field


class CatalogueOrder(BaseModel):
    """catalogue: the file. only: pattern of owner/repo, which has to fit one; again: also what nothing changed of.
    memory_bytes, disk_bytes: for all that run at once, None for what the host has. run: the run's id, made when it is
    not given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    catalogue: Path = Field(default_factory=catalogue_path)
    only: str | None = Field(default=None, min_length=1)
    again: bool = False
    max_parallel: int = Field(default=2, ge=1, le=64)
    memory_bytes: int | None = Field(default=None, gt=0)
    disk_bytes: int | None = Field(default=None, gt=0)
    runner: Literal["process", "docker"] = runner_field()
    hub: str = hub_field()
    store: str = store_field()
    work: Path = work_field()
    run: str | None = None
