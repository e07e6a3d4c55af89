"""Text from strangers' files and logs, made safe to show: nothing in it moves a cursor, hides or reorders."""

import unicodedata

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode general categories: controls, formats (bidi overrides, zero widths), surrogates, private and unassigned code
points, and the separators that break lines."""


def visible(text: str) -> str:
    r"""Each control, format, unassigned and line-breaking character as \n, \x1b, \u202e, \U000e0001."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _HIDDEN else each for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    known = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return known.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
