"""What a pickle would build, followed with symbols: nothing is imported, called or executed.

Only the opcodes that torch.save emits for tensors in dictionaries are followed, and only the names in `CALLABLE`
may be called. Everything else is told to the caller by name. Names are allowed, not forbidden, and compared whole:
scanners that list bad ones were passed by subclasses and aliases (CVE-2025-10157).
"""

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

MOST_OPCODES = 1_000_000

STORAGES = {
    "torch DoubleStorage": ("F64", 8), "torch FloatStorage": ("F32", 4), "torch HalfStorage": ("F16", 2),
    "torch BFloat16Storage": ("BF16", 2), "torch LongStorage": ("I64", 8), "torch IntStorage": ("I32", 4),
    "torch ShortStorage": ("I16", 2), "torch CharStorage": ("I8", 1), "torch ByteStorage": ("U8", 1),
    "torch BoolStorage": ("BOOL", 1),
}  # fmt: skip
"""Storage class (module, a space, name, as pickletools writes it): dtype by safetensors' name, bytes an element."""

DTYPES = {f"torch {name}" for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool")}
_ORDERED_DICT, _SIZE = "collections OrderedDict", "torch Size"
_TENSOR, _PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
CALLABLE = {_ORDERED_DICT, _SIZE, _TENSOR, _PARAMETER}
ALLOWED = CALLABLE | DTYPES | STORAGES.keys()


class _Malformed(ValueError):
    """The pickle is not one that torch.save writes for tensors in dictionaries; str() says where it departs."""


@dataclass(frozen=True)
class Global:
    name: str


@dataclass(frozen=True)
class Storage:
    """Raw elements outside the pickle, `count` of them."""

    key: str
    dtype: str
    item_bytes: int
    count: int


@dataclass(frozen=True)
class Tensor:
    storage: Storage
    shape: tuple[int, ...]


@dataclass
class Symbols:
    """What was met in one pickle: names imported, opcodes not followed, storages by key, and the value built.

    problem: why the pickle could not be followed to its end; the names are then still those of all its opcodes.
    complete: the STOP was reached, so the stream stands behind it.
    """

    globals: list[str] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    storages: dict[str, Storage] = field(default_factory=dict)
    value: Any = None
    problem: str | None = None
    complete: bool = False


class _Mark:
    pass


_MARK = _Mark()


class _Unknown:
    """The result of calling what may not be called."""


def follow(stream: BinaryIO, budget: int = MOST_OPCODES) -> Symbols:
    """Follows one pickle up to its STOP, leaving the stream behind it.

    Raises nothing for what it reads: names, opcodes and problems are recorded.
    """
    machine = _Machine()
    symbols = machine.symbols
    try:
        with warnings.catch_warnings():
            # An invalid escape in a hostile text is nothing the caller of a scan wants to hear of.
            warnings.simplefilter("ignore")
            _follow(stream, machine, budget)
        symbols.complete = True
    except (ValueError, OverflowError, EOFError, MemoryError) as error:
        symbols.problem = str(error)[:200]
    return symbols


def _follow(stream: BinaryIO, machine: "_Machine", budget: int) -> None:
    for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if number >= budget:
            raise _Malformed(f"more than {budget} opcodes")
        machine.step(opcode.name, argument)


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.symbols = Symbols()
        self.lost = False

    def step(self, name: str, argument: Any) -> None:
        """Follows one opcode; once lost, the stack means nothing and only names are collected."""
        if name in ("GLOBAL", "INST"):
            self._meet(argument)
        if name not in _STEPS:
            if name not in self.symbols.opcodes:
                self.symbols.opcodes.append(name)
            self.lost = True
        if self.lost:
            if name == "STACK_GLOBAL":
                self._meet("? ?")
            return
        try:
            _STEPS[name](self, argument)
        except _Malformed as error:
            self.symbols.problem, self.lost = str(error), True
        except (IndexError, KeyError):
            self.symbols.problem, self.lost = f"the stack or memo lacks what {name} needs", True

    def _meet(self, name: str) -> None:
        if name not in self.symbols.globals:
            self.symbols.globals.append(name)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise _Malformed("a mark where a value is needed")
        return value

    def pop_to_mark(self) -> list[Any]:
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def tuple_of(self, count: int) -> None:
        self.push(tuple([self.pop() for _ in range(count)][::-1]))

    def stop(self) -> None:
        self.symbols.value = self.pop()

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        self.push(Global(f"{module} {name}" if isinstance(name, str) and isinstance(module, str) else "? ?"))
        self._meet(self.stack[-1].name)

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, _Unknown):
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise _Malformed("items are set on something that is not a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashing a tuple of tuples of tuples can take for ever.
            if type(key) not in (str, int):
                raise _Malformed("a key is neither text nor a number")
            target[key] = value

    def append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise _Malformed("values are appended to something that is not a list")
        self.stack[-1].extend(values)

    def build(self) -> None:
        state, target = self.pop(), self.stack[-1]
        if not isinstance(target, _Unknown) and not (isinstance(target, dict) and isinstance(state, dict)):
            raise _Malformed("a state is set on something that is not a dictionary")

    def persistent(self) -> None:
        match self.pop():
            case ("storage", Global(name), str(key), str(), int(count), *rest) if (
                name in STORAGES and 0 <= count < 2**63 and rest in ([], [None])
            ):
                storage = Storage(key, *STORAGES[name], count)
                if self.symbols.storages.setdefault(key, storage) != storage:
                    raise _Malformed(f"storage {key} is described in two ways")
                self.push(storage)
            case _:
                raise _Malformed("a persistent id that names no storage")

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Global) or not isinstance(arguments, tuple):
            raise _Malformed("something is called that is not a name")
        if function.name not in ALLOWED:
            self.push(_Unknown())
            return
        match function.name, arguments:
            case (name, ()) if name == _ORDERED_DICT:
                self.push({})
            case (name, (tuple(),)) if name == _SIZE:
                self.push(arguments[0])
            case (name, (Tensor(), bool(), dict())) if name == _PARAMETER:
                self.push(arguments[0])
            case (name, (Storage() as storage, int(offset), tuple(shape), tuple(stride), bool(), dict(), *_)) if (
                name == _TENSOR
            ):
                self.push(_tensor(storage, offset, shape, stride))
            case _:
                raise _Malformed(f"{function.name} is called in a way that torch.save never writes")


def _tensor(storage: Storage, offset: int, shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Tensor:
    sizes = (offset, *shape, *stride)
    if len(shape) != len(stride) or len(shape) > 8 or not all(type(n) is int and 0 <= n < 2**63 for n in sizes):
        raise _Malformed("a tensor's shape or stride is not a list of natural numbers")
    last = offset + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
    if 0 not in shape and last >= storage.count:
        raise _Malformed(f"a tensor of shape {shape} reaches outside storage {storage.key}")
    return Tensor(storage, shape)


def tensors(value: Any) -> dict[str, Tensor]:
    """Name -> tensor in a dictionary, or in the dictionaries right inside it (their names joined with a dot)."""
    found: dict[str, Tensor] = {}
    if not isinstance(value, dict):
        return found
    for key, inner in value.items():
        if isinstance(inner, Tensor):
            found[str(key)] = inner
        elif isinstance(inner, dict):
            found |= {f"{key}.{name}": tensor for name, tensor in inner.items() if isinstance(tensor, Tensor)}
    return found


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(value)


def _literal(machine: _Machine, argument: Any) -> None:
    machine.push(argument)


def _put(machine: _Machine, argument: int) -> None:
    if machine.stack[-1] is _MARK:
        raise _Malformed("a mark is put into the memo")
    machine.memo[argument] = machine.stack[-1]


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": _constant(_MARK),
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "EMPTY_TUPLE": _constant(()),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "BININT": _literal,
    "BININT1": _literal,
    "BININT2": _literal,
    "LONG1": _literal,
    "BINFLOAT": _literal,
    "BINUNICODE": _literal,
    "SHORT_BINUNICODE": _literal,
    "BINPUT": _put,
    "LONG_BINPUT": _put,
    "MEMOIZE": lambda machine, _: _put(machine, len(machine.memo)),
    "BINGET": lambda machine, key: machine.push(machine.memo[key]),
    "LONG_BINGET": lambda machine, key: machine.push(machine.memo[key]),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "SETITEM": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, _: machine.append([machine.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.pop_to_mark()),
    "GLOBAL": lambda machine, name: machine.push(Global(name)),
    "STACK_GLOBAL": lambda machine, _: machine.stack_global(),
    "BINPERSID": lambda machine, _: machine.persistent(),
    "REDUCE": lambda machine, _: machine.reduce(),
    "BUILD": lambda machine, _: machine.build(),
    "STOP": lambda machine, _: machine.stop(),
}
