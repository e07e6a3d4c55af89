"""Text from strangers' files and logs, made safe to show: nothing in it moves a cursor, hides or reorders."""

_KNOWN = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Each character that is not printable as \n, \x1b, \u202e, \U000e0001: controls, formats (bidi overrides, zero
    widths), private and unassigned code points, and every space but the usual one."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return _KNOWN.get(character) or (
        f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )
