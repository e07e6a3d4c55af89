"""Which code a job is: its module, all it imports of our own, and the packages that compute.

A change in the store or the command line must not make the mill convert everything again, so the digest follows
the imports (those inside functions too) instead of covering the whole tree.
"""

import ast
import hashlib
import threading
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

OWN = ("draftmill", "jobs")
COMPUTING = ("numpy", "gguf", "tokenizers", "xllamacpp")
"""Packages whose version can change a job's output."""

_PARSING = threading.Lock()
"""CPython 3.11 counts the depths of all threads' syntax trees together, and fails at times: python/cpython#106905."""


@cache
def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(package)
    return Path(spec.origin).parent


@cache
def _source(module: str) -> Path | None:
    """Found by its name below its package: to ask the importer for it would import every package above it."""
    package, *names = module.split(".")
    path = _folder(package).joinpath(*names)
    found = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((each for each in found if each.is_file()), None)


@cache
def _imports(path: Path, package: str) -> frozenset[str]:
    found: set[str] = set()
    with _PARSING:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, base] if base else parts)
            found.add(base)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(name for name in found if name.split(".")[0] in OWN)


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    """All of them, also inside others; in expressions, which are most of a tree, there are none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(block, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from _statements(inner)


def modules_of(job: str) -> dict[str, Path]:
    """Module name -> source file, for jobs.<job> and everything of ours it imports."""
    seen: dict[str, Path] = {}
    waiting = {f"jobs.{job}"}
    while waiting:
        name = waiting.pop()
        parent = name.rpartition(".")[0]
        if name in seen or (parent and parent not in seen and _source(parent) is None):
            continue
        path = _source(name)
        if path is None:
            continue  # `from module import name` also yields module.name, which is rarely a module
        seen[name] = path
        package = name if path.name == "__init__.py" else parent
        waiting |= _imports(path, package) | ({parent} if parent else set())
    return seen


@cache
def code_digest(job: str) -> str:
    """sha256 over the sources of `modules_of(job)` and the versions of the computing packages."""
    digest = hashlib.sha256()
    for name, path in sorted(modules_of(job).items()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    for package in COMPUTING:
        try:
            digest.update(f"{package}=={version(package)}\0".encode())
        except PackageNotFoundError:
            digest.update(f"{package} absent\0".encode())
    return digest.hexdigest()
