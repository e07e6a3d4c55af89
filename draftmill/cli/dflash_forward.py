"""`draftmill dflash forward | pick | compare`: the reference forward on arrays, and a device's dump against it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from draftmill.cli.ending import ending, print_json
from draftmill.cli.folder import folder
from draftmill.cli.telling import plain
from draftmill.digest import sha256_file
from draftmill.outcome import BadConfiguration, InputOutput, NotPermitted

if TYPE_CHECKING:
    import numpy as np

    from draftmill.dflash.forward import Draft, Trace

DEPARTS = 1
PackageFolder = Annotated[
    Path,
    typer.Argument(metavar="PACKAGE", exists=True, help="A package, an upstream checkpoint, or a GGUF draft."),
]
Features = Annotated[
    Path,
    typer.Option(metavar="F.npy", help="Outputs of the tapped target layers, side by side: context x (taps * hidden)."),
]
Block = Annotated[
    Path,
    typer.Option(metavar="B.npy", help="The target's embedding rows of anchor and masks, unscaled: block x hidden."),
]
Steps = Annotated[
    str | None,
    typer.Option(metavar="6,5", help="Grow the context's cache in steps of so many rows, which add up to it."),
]
Dtype = Annotated[str, typer.Option(metavar="float32|float64", help="What is computed in; float64 for checking.")]
PackedOption = Annotated[
    str, typer.Option("--weights", metavar="decoded|packed", help="packed: 4-bit in memory, decoded during a product.")
]
Rule = Annotated[
    str,
    typer.Option(
        metavar="exclusive|inclusive|left|ignored",
        help="What a window of w sees: |distance| < w as published; transformers', llama.cpp's, z-lab's first code's.",
    ),
]
Causal = Annotated[
    bool | None, typer.Option("--causal/--non-causal", help="For sliding layers of a config that does not state it.")
]
Start = Annotated[int, typer.Option(min=0, help="Absolute position of the first context row.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def forward_command(
    package: PackageFolder,
    features: Features,
    block: Block,
    out: Annotated[Path, typer.Option(metavar="H.npy", help="Where the rows after the final norm go: block x hidden.")],
    cached_steps: Steps = None,
    dtype: Dtype = "float32",
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", parser=folder, help="Write every intermediate as NAME.npy into DIR.")
    ] = None,
    weights: PackedOption = "decoded",
    window: Rule = "exclusive",
    causal: Causal = None,
    start: Start = 0,
    as_json: Json = False,
) -> None:
    """Run one pass of a draft on arrays: the reference that a device route is held against.

    Ends with 0 when written, 1 when the draft or an array is refused or something broke, 2 on wrong usage.
    """
    import numpy as np

    with ending(as_json), named_endings(), opened(package, dtype, weights, window, causal) as draft:
        rows, steps = _run(draft, features, block, cached_steps, start, tracing=trace is not None)
        if trace is not None:
            assert steps is not None  # noqa: S101 - it was asked for
            _save_all(trace, steps)
        _save(out, rows)
        remarks = _remarks(len(rows), draft.config.block_size)
    written = {"path": str(out), "shape": list(rows.shape), "dtype": rows.dtype.name, "sha256": sha256_file(out)}
    if as_json:
        print_json({"outcome": "ok", "written": written, "trace": sorted(steps or {}), "remarks": remarks})
        return
    norms = np.sqrt(np.mean(np.square(rows, dtype=np.float64), axis=1))
    typer.echo(
        f"{out}: {' x '.join(map(str, rows.shape))} {rows.dtype.name}, RMS {norms.min():.4g} to {norms.max():.4g}"
    )
    typer.echo(f"sha256 {written['sha256']}")
    if trace is not None:
        typer.echo(f"{trace}: {len(steps or {})} intermediates")
    for remark in remarks:
        typer.echo(f"remark: {remark}")


def pick_command(
    package: PackageFolder,
    hidden: Annotated[
        Path, typer.Option(metavar="H.npy", help="What `forward` wrote: block x hidden, the anchor's row first.")
    ],
    logits: Annotated[
        Path,
        typer.Option(metavar="L.npy", help="The target's head of the same rows, untransformed: block x vocabulary."),
    ],
    anchor: Annotated[int, typer.Option(min=0, help="The token that was committed last.")],
    out: Annotated[Path, typer.Option(metavar="IDS.npy", help="Where the drafted ids go: int64, block - 1.")],
    causal: Causal = None,
    as_json: Json = False,
) -> None:
    """Pick a block's drafts: the argmax of each row in generation 1, the candidate selector's walk in generation 2.

    Ends with 0 when written, 1 when the draft or an array is refused or something broke, 2 on wrong usage.
    """
    from draftmill.dflash.forward.arrays import read_array

    with ending(as_json), named_endings(), opened(package, "float32", "decoded", "exclusive", causal) as draft:
        config = draft.config
        rows = read_array(hidden, "--hidden", (None, config.hidden_size))
        scores = read_array(logits, "--logits", (len(rows), None))
        _require_vocabulary(scores.shape[1], anchor, config.vocab_size)
        if len(rows) < 2:
            raise BadConfiguration(
                "One row is the anchor's alone, which drafts nothing; give the rows of a whole block.",
                code="dflash.nothing_to_pick",
            )
        ids = draft.walk(rows[1:].astype("float32"), scores[1:].astype("float32"), anchor)
        _save(out, ids)
    if as_json:
        print_json({"outcome": "ok", "ids": ids.tolist(), "path": str(out)})
    else:
        typer.echo(f"{out}: {ids.tolist()}")


def compare_command(
    package: PackageFolder,
    features: Features,
    block: Block,
    against: Annotated[
        Path,
        typer.Option(
            metavar="DUMP_DIR",
            exists=True,
            file_okay=False,
            help="The device's rows as NAME.npy, names as --trace has them.",
        ),
    ],
    tolerance: Annotated[
        float | None, typer.Option(min=0.0, help="Relative RMS that a row may differ by. Default: 0.001.")
    ] = None,
    cached_steps: Steps = None,
    dtype: Dtype = "float32",
    weights: PackedOption = "decoded",
    window: Rule = "exclusive",
    causal: Causal = None,
    start: Start = 0,
    as_json: Json = False,
) -> None:
    """Hold a device's intermediates against the reference forward's: where does it depart first?

    Ends with 0 when every row agrees, 1 when one departs, or something is refused or broke, 2 on wrong usage.
    """
    from draftmill.dflash.forward.comparison import DEFAULT_TOLERANCE, compare, read_dump

    with ending(as_json), named_endings(), opened(package, dtype, weights, window, causal) as draft:
        _, steps = _run(draft, features, block, cached_steps, start, tracing=True)
        assert steps is not None  # noqa: S101 - it was asked for
        found = compare(steps, read_dump(against, steps), DEFAULT_TOLERANCE if tolerance is None else tolerance)
    if as_json:
        print_json(found.as_json())
    else:
        table = Table(box=None, header_style="bold")
        for heading in ("tensor", "rows", "max abs", "rel. RMS", "cosine", "departs at row"):
            table.add_column(heading, no_wrap=True)
        for each in found.tensors:
            at = "-" if each.departs is None else f"[red]{each.departs}[/] ({each.departing_rows} of {each.rows})"
            bad = f", {each.not_finite} not finite" if each.not_finite else ""
            cosine = "-" if each.cosine is None else f"{each.cosine:.8f}"
            table.add_row(
                plain(each.name), str(each.rows), f"{each.largest:.3e}", f"{each.relative_rms:.3e}", cosine, at + bad
            )
        console = Console(emoji=False, soft_wrap=True, width=max(Console().width, 110))
        console.print(table)
        if found.absent:
            console.print(f"not in the dump: {len(found.absent)} of {len(found.absent) + len(found.tensors)} names")
        console.print(f"[{'green' if found.agrees else 'red'}]{plain(found.sentence)}[/]")
    raise typer.Exit(0 if found.agrees else DEPARTS)


@contextmanager
def opened(package: Path, dtype: str, weights: str, window: str, causal: bool | None) -> "Iterator[Draft]":
    """The draft, by options' words. Raises BadParameter for another word."""
    import numpy as np

    from draftmill.dflash.forward import Draft, WindowRule
    from draftmill.dflash.vouching import check_vouched

    one_of("--dtype", dtype, ("float32", "float64"))
    one_of("--weights", weights, ("decoded", "packed"))
    one_of("--window", window, tuple(WindowRule))
    if package.is_dir():
        check_vouched(package)
    with Draft.open(
        package, dtype=np.dtype(dtype), packed=weights == "packed", causal=causal, window_rule=WindowRule(window)
    ) as draft:
        yield draft


@contextmanager
def named_endings() -> Iterator[None]:
    """What the system refuses, with a sentence."""
    try:
        yield
    except PermissionError as error:
        raise NotPermitted(
            f"{error.filename} may not be read or written: {error.strerror}. Mend its permissions.",
            code="dflash.not_permitted",
        ) from error
    except OSError as error:
        raise InputOutput(f"Reading or writing failed: {error}.", code="dflash.input_output") from error


def _run(
    draft: "Draft", features: Path, block: Path, cached_steps: str | None, start: int, *, tracing: bool
) -> "tuple[np.ndarray, Trace | None]":
    from draftmill.dflash.forward.arrays import read_array

    config = draft.config
    context = read_array(features, "--features", (None, config.taps * config.hidden_size))
    rows = read_array(block, "--block", (None, config.hidden_size))
    cache = draft.cache(start=start, trace=tracing)
    done = 0
    for step in _steps(cached_steps, len(context)):
        cache.extend(context[done : done + step])
        done += step
    return cache.forward_cached(rows), cache.trace


def _remarks(rows: int, block_size: int) -> list[str]:
    if rows == block_size:
        return []
    return [f"--block has {rows} rows and the draft works in blocks of {block_size}: each row sees all the others."]


def _steps(given: str | None, rows: int) -> list[int]:
    if given is None:
        return [rows]
    try:
        steps = [int(word) for word in given.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{given!r} is no list of whole numbers", param_hint="--cached-steps") from None
    if min(steps) < 1 or sum(steps) != rows:
        raise typer.BadParameter(
            f"the steps must be at least 1 each and add up to the {rows} context rows, not {sum(steps)}",
            param_hint="--cached-steps",
        )
    return steps


def _require_vocabulary(columns: int, anchor: int, vocabulary: int) -> None:
    """A target's head may have more rows than the draft's vocabulary (padding), never fewer."""
    if columns < vocabulary:
        raise BadConfiguration(
            f"--logits has {columns} columns and the draft a vocabulary of {vocabulary}; give the whole head's output.",
            code="dflash.logits_too_few",
        )
    if anchor >= vocabulary:
        raise BadConfiguration(
            f"--anchor {anchor} is no token of a vocabulary of {vocabulary}.", code="dflash.anchor_outside"
        )


def one_of(option: str, word: str, words: tuple[str, ...]) -> None:
    if word not in words:
        raise typer.BadParameter(f"{word} is none of {', '.join(words)}", param_hint=option)


def _save(path: Path, rows: "np.ndarray") -> None:
    import numpy as np

    from draftmill.whole_file import whole_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as beside, beside.open("wb") as file:
        np.save(file, rows)


def _save_all(place: Path, steps: "Trace") -> None:
    for name, rows in steps.items():
        _save(place / f"{name}.npy", rows)
