"""A YAML file of settings, read so that what is wrong in it is told by its line.

Scalars are taken as text and typed by the models that read them: `on` stays "on", `0` and `11.5.1` stay what was
written. A key that is given twice is an error, where YAML readers silently take the last. So is an alias (`*name`):
what stands for a line elsewhere has no line of its own, and a few that stand for each other grow without bound.
"""

from collections import UserDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from draftmill.outcome import BadConfiguration

Place = tuple[str | int, ...]
DEEPEST = 50

# libyaml's parser is about ten times as fast as the one in Python; some builds of PyYAML lack it.
_BASE: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class _Loader(_BASE):
    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """The tag, which nobody asks for: PyYAML's own search for one takes a third of the time."""
        return ""


class Mapping(UserDict[str, Any]):
    """A mapping of the file, which knows where each of its parts stands. twice: places and lines of keys that are given
    again; of these the last one counts here."""

    def __init__(
        self, path: Path, node: yaml.Node, values: dict[str, Any], twice: Iterable[tuple[Place, int]] = ()
    ) -> None:
        super().__init__(values)
        self.twice = tuple(twice)
        self._path = path
        self._node = node

    def explain(self, wrong: Iterable[tuple[Place, str]]) -> str:
        """One sentence a line, in the file's order: line, key and what is wrong there, keys given twice among it."""
        told = {(self._line(place), ".".join(map(str, place)), what) for place, what in wrong}
        told |= {(line, ".".join(map(str, place)), "given twice") for place, line in self.twice}
        return "\n".join(f"{self._path}, line {line}, {name}: {what}" for line, name, what in sorted(told))

    def _line(self, place: Place) -> int:
        """Of a key that is missing that of what it is missing from."""
        node, line = self._node, self._node.start_mark.line
        for part in place:
            found = _below(node, part)
            if found:
                line, node = found
        return line + 1


def read_mapping(path: Path, key: str, *, code: str = "device.file") -> Mapping:
    """The file's only top-level key. Raises BadConfiguration where it cannot be read or is something else."""
    node = _compose(path, code)
    if twice := list(_twice(node, ())):
        raise BadConfiguration(Mapping(path, node, {}, twice).explain(()), code=code, where=str(path))
    below = _below(node, key)
    if below is None or len(node.value) != 1 or not isinstance(below[1], yaml.MappingNode):
        sentence = f"{path} must hold one mapping, {key}, of names to profiles; config/{key}.yaml shows how."
        raise BadConfiguration(sentence, code=code, where=str(path))
    return Mapping(path, below[1], _value(below[1]))


def read_document(path: Path, *, code: str, example: str) -> Mapping:
    """The whole file, which has to be a mapping. Raises BadConfiguration where it cannot be read or is none; keys that
    are given twice are left to the caller, to be told with all else."""
    node = _compose(path, code)
    if not isinstance(node, yaml.MappingNode):
        sentence = f"{path} must be a mapping of sections; {example} shows how."
        raise BadConfiguration(sentence, code=code, where=str(path))
    return Mapping(path, node, _value(node), _twice(node, ()))


def _compose(path: Path, code: str) -> yaml.Node:
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=_Loader)
        shared = _has_shared(node)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadConfiguration(f"{path} cannot be read: {error}", code=code, where=str(path)) from error
    if shared:
        events = yaml.parse(text, Loader=_Loader)
        found = {(each.start_mark.line + 1, each.anchor) for each in events if isinstance(each, yaml.AliasEvent)}
        told = [f"{path}, line {line}, *{name}: is an alias; write out what it is for" for line, name in sorted(found)]
        raise BadConfiguration("\n".join(told), code=code, where=str(path))
    return node


def _has_shared(root: yaml.Node | None) -> bool:
    """Whether a node stands at two places, or within itself. Raises ValueError where it is too deep to be walked."""
    seen: set[int] = set()
    level = [root] if root else []
    for _ in range(DEEPEST):
        below: list[yaml.Node] = []
        for node in level:
            if id(node) in seen:
                return True
            seen.add(id(node))
            if isinstance(node, yaml.MappingNode):
                below += [part for pair in node.value for part in pair]
            elif isinstance(node, yaml.SequenceNode):
                below += node.value
        if not below:
            return False
        level = below
    raise ValueError(f"it is nested more than {DEEPEST} deep")


def _value(node: yaml.Node) -> Any:
    """Text, lists and mappings."""
    if isinstance(node, yaml.MappingNode):
        return {str(name.value): _value(value) for name, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    return node.value


def _below(node: yaml.Node | None, part: str | int) -> tuple[int, yaml.Node] | None:
    """(line from 0, node) of a key's value or a list's item."""
    if isinstance(node, yaml.MappingNode):
        for name, value in reversed(node.value):  # of two the last one counts
            if name.value == part:
                return name.start_mark.line, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
        item = node.value[part]
        return item.start_mark.line, item
    return None


def _twice(node: yaml.Node | None, place: Place) -> Iterator[tuple[Place, int]]:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for name, value in node.value:
            here = (*place, str(name.value))
            if name.value in seen:
                yield here, name.start_mark.line + 1
            seen.add(name.value)
            yield from _twice(value, here)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _twice(item, (*place, number))
