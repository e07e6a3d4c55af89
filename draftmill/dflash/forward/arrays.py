"""Arrays that a person gives as .npy files, checked before anything is computed with them."""

from pathlib import Path

import numpy as np

from draftmill.outcome import Refusal, Refused

ACCEPTED = ("float16", "float32", "float64")


def read_array(path: Path, what: str, shape: tuple[int | None, ...], *, finite: bool = True) -> np.ndarray:
    """The array of a .npy file as it is stored. what: its part in the command ("--features"); shape: None fits any.

    Raises Refused: dflash.array_missing, array_unreadable, array_dtype, array_shape, array_not_finite.
    """
    array = _loaded(path, what)
    if array.dtype.name not in ACCEPTED:
        raise _refused(
            "array_dtype", what, array.dtype.name, list(ACCEPTED),
            f"{path} does not hold floating-point numbers; NumPy knows no bfloat16, so save such rows as float32.",
        )  # fmt: skip
    if array.ndim != len(shape) or any(
        (want is not None and have != want) or have == 0 for have, want in zip(array.shape, shape, strict=False)
    ):
        wanted = ["at least 1" if size is None else size for size in shape]
        raise _refused(
            "array_shape", what, list(array.shape), wanted,
            f"{path} has another shape than this draft takes; rows come first, one a position.",
        )  # fmt: skip
    if finite and not (good := np.isfinite(array)).all():
        at = [int(place) for place in np.argwhere(~good)[0]]
        raise _refused(
            "array_not_finite", what, f"{array[tuple(at)]} at {at}", "finite numbers",
            f"{path} has {int((~good).sum())} values that are infinite or not a number; nothing can be computed from "
            "them. Look at what wrote the file.",
        )  # fmt: skip
    return array


def _loaded(path: Path, what: str) -> np.ndarray:
    if not path.is_file():
        raise _refused("array_missing", what, str(path), "a .npy file", f"{path} is no file; give one of numpy.save's.")
    try:
        # Mapped, so that an absurd header costs no memory; never pickled, which could run code.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, TypeError, SyntaxError) as error:
        raise _refused(
            "array_unreadable", what, str(error)[:200], "what numpy.save writes",
            f"{path} is not a whole .npy file without objects; write it anew with numpy.save.",
        ) from error  # fmt: skip
    if isinstance(array, np.memmap) and (beyond := path.stat().st_size - array.offset - array.nbytes):
        raise _refused(
            "array_unreadable", what, f"{beyond} bytes behind the array", "what numpy.save writes",
            f"{path} goes on where its array ends, so it is two files in one or its header is another's; write it anew "
            "with numpy.save.",
        )  # fmt: skip
    if not isinstance(array, np.ndarray):
        raise _refused(
            "array_unreadable", what, "an archive of arrays", "what numpy.save writes",
            f"{path} is an .npz archive; save each array by itself with numpy.save.",
        )  # fmt: skip
    return array


def _refused(code: str, where: str, measured: object, expected: object, sentence: str) -> Refused:
    return Refused(Refusal(f"dflash.{code}", where, measured, expected, sentence))
