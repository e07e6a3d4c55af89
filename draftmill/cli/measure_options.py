"""The options that `measure speed` and `measure acceptance` share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from draftmill.cli.folder import file_path, folder

Target = Annotated[
    Path,
    typer.Option(
        parser=file_path,
        metavar="FILE",
        help="The target's GGUF file.",
        show_default=False,
    ),
]
Draft = Annotated[
    Path,
    typer.Option(
        parser=file_path,
        metavar="FILE",
        help="The draft's GGUF file.",
        show_default=False,
    ),
]
TargetOrFolder = Annotated[
    Path,
    typer.Option(
        "--target",
        parser=file_path,
        metavar="PATH",
        help="The target's GGUF file, or a Hugging Face folder.",
        show_default=False,
    ),
]
Drafter = Annotated[
    Path,
    typer.Option(
        "--draft",
        "--drafter",
        parser=file_path,
        metavar="PATH",
        help="The draft's GGUF file; beside a target's folder a DFlash package, checkpoint or GGUF.",
        show_default=False,
    ),
]
Fallback = Annotated[
    float | None, typer.Option(min=0, max=1, help="Decode plainly once fewer of the offered drafts are accepted.")
]
TorchDevice = Annotated[str, typer.Option(metavar="cpu|cuda", help="torch's name of the device of the target.")]
TargetDtype = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="What the target's weights are computed in.")
]
DeviceName = Annotated[str, typer.Option(help="A device of the devices file, or cpu.")]
Devices = Annotated[
    Path | None,
    typer.Option(
        envvar="DRAFTMILL_DEVICES", parser=file_path, metavar="FILE", help="A devices file; without one there is cpu."
    ),
]
Engine = Annotated[
    Path | None,
    typer.Option(parser=file_path, metavar="FILE", help="A llama-server to use in place of the device's own engine."),
]
OF_A_FILE = "belongs to a llama-server named by its file: name it with --engine"
"""Why --library-path is refused without one."""
LibraryPath = Annotated[
    list[Path] | None,
    typer.Option(parser=folder, metavar="FOLDER", help="A folder of its libraries; may be given again."),
]
PromptFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompts", parser=file_path, metavar="PATH", help="A file or folder of prompts; may be given again."
    ),
]
Kind = Annotated[list[str] | None, typer.Option(help="Prompts of this kind only; may be given again.")]
Quick = Annotated[bool, typer.Option("--quick", help="One prompt only: an impression, not a result by kind.")]
Form = Annotated[
    Literal["auto", "chat", "raw"],
    typer.Option(help="Prompts as chat messages or as they are; auto: chat where the target has a template."),
]
Budget = Annotated[int, typer.Option("--budget", "--max-new", min=8, help="New tokens a request.")]
NMax = Annotated[int, typer.Option(min=1, help="Tokens drafted a round at most.")]
NMin = Annotated[int, typer.Option(min=0, help="Rounds with fewer drafts are not verified.")]
PMin = Annotated[float, typer.Option(min=0, max=1, help="Drafting stops below this probability.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the engine. Default: all cores.")]
Context = Annotated[int, typer.Option(min=64, help="Context of the servers, in tokens.")]
Seed = Annotated[int, typer.Option(min=0, help="The engine's seed; decoding is greedy.")]
ReportFolder = Annotated[
    Path | None, typer.Option("--report", parser=folder, help="Write report.json, .md and .html here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Wait = Annotated[int, typer.Option(min=0, help="Seconds to wait for a device that is held.")]
Publish = Annotated[bool, typer.Option("--publish", help="Run it as a flow, and put the report into the store.")]
Work = Annotated[
    Path, typer.Option(envvar="DRAFTMILL_WORK", parser=folder, help="Job cache and Prefect state, with --publish.")
]
Runner = Annotated[
    Literal["process", "docker"], typer.Option(envvar="DRAFTMILL_RUNNER", help="Where jobs run, with --publish.")
]
