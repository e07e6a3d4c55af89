"""The product of rows with a matrix that lies in panels, compiled: every weight is read once, at memory's own pace.

A panel is 32 outputs side by side, column after column: [K, 32], as the container's own tiles have it, even outputs
before odd ones. For a few rows at a time, one column's 32 weights are multiplied with each row's value, and the sums
stay in registers through 256 columns; the sums of such a stretch are then added to those before. So a row's result
depends on nothing beside it, and is the same for weights that are decoded a tile at a time.

The innermost steps are written in LLVM's vectors, since numba's own loops would keep the sums in memory. numba (extra
`engine`) compiles for the processor at hand, and keeps what it compiled.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, codegen, config, types
from numba.extending import intrinsic

PANEL = 32
DEPTH = 256
"""Columns whose sums stay in registers: those of a tile."""
PLAIN, Q4_1, Q4_K = 0, 1, 2
"""What a store holds: weights as they are multiplied, or chunks of an encoding (layouts: `draftmill.q4nx`)."""
CHUNK_BYTES = (0, 5120, 4736)
LINE = 64
"""Bytes of a cache line: a vector that begins elsewhere is read twice."""

_FEATURES = codegen.get_host_cpu_features() if config.CPU_FEATURES is None else config.CPU_FEATURES  # type: ignore[attr-defined]
_WIDE = "+avx512f" in _FEATURES.split(",")
HEIGHT, _VECTOR_BYTES = (8, 128) if _WIDE else (4, 64)
"""Rows of a block: its sums take two registers a row, which is what a processor has room for. No bit depends on it."""
_UNROLLED = 4
_HALF = PANEL // 2
_BYTE, _SHORT, _INDEX, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_SOON = [ir.Constant(_SHORT, number) for number in (0, 3, 1)]
"""Of a prefetch: to be read, into every cache, data."""


def _compiled(function: Callable[..., Any]) -> Any:
    try:
        return numba.njit(error_model="numpy", nogil=True, cache=True)(function)
    except RuntimeError:  # no folder that a cache could be written to
        return numba.njit(error_model="numpy", nogil=True)(function)


def _step(function: Callable[..., Any]) -> Any:
    """What compiled functions call, written in LLVM's instructions."""
    return intrinsic(function)


def _at(builder: Any, base: Any, index: Any, offset: int) -> Any:
    return builder.gep(base, [builder.add(index, ir.Constant(_INDEX, offset))])


def _times(builder: Any, index: Any, factor: int) -> Any:
    return builder.mul(index, ir.Constant(_INDEX, factor))


def _loaded(builder: Any, pointer: Any, element: Any, count: int, alignment: int = 1) -> Any:
    vector = ir.VectorType(element, count).as_pointer()
    return builder.load(builder.bitcast(pointer, vector), align=alignment)


def _picked(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(_SHORT, len(lanes)), lanes))


def _every(element: Any, count: int, value: float) -> Any:
    return ir.Constant(ir.VectorType(element, count), [value] * count)


def _element(context: Any, signature: Any) -> tuple[Any, int]:
    """The number type of the first argument, an array, and its bytes."""
    dtype = signature.args[0].dtype
    return context.get_value_type(dtype), dtype.bitwidth // 8


def _accumulator(ahead: int) -> Any:
    """ahead: columns that are asked for before they are needed, for weights that come from memory; 0 for none. A
    processor alone asks for too few: with it the pass of few rows takes 15 % less."""

    @_step
    def accumulate(typing, sums, panel, rows, depth):  # type: ignore[no-untyped-def]
        """sums[HEIGHT, PANEL] += rows[depth, HEIGHT]' . panel[depth, PANEL]; panel and rows are addresses."""

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element, size = _element(context, signature)
            lanes = _VECTOR_BYTES // size
            vector = ir.VectorType(element, lanes)
            name = f"llvm.fmuladd.v{lanes}f{8 * size}"
            fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
            fetching = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), *[_SHORT] * 3])
            fetch = cgutils.get_or_insert_function(builder.module, fetching, "llvm.prefetch.p0")
            held = context.make_array(signature.args[0])(context, builder, args[0]).data
            weights, values = (builder.inttoptr(address, element.as_pointer()) for address in args[1:3])

            def step(column, part, totals):  # type: ignore[no-untyped-def]
                ours = _loaded(
                    builder, _at(builder, weights, _times(builder, column, PANEL), part), element, lanes, size
                )
                for row, total in enumerate(totals):
                    value = builder.load(_at(builder, values, _times(builder, column, HEIGHT), row))
                    nothing = ir.Constant(vector, ir.Undefined)
                    one = builder.insert_element(nothing, value, ir.Constant(_SHORT, 0))
                    spread = _picked(builder, one, nothing, [0] * lanes)
                    builder.store(builder.call(fma, [ours, spread, builder.load(total)]), total)

            begin, unroll, end = ir.Constant(_INDEX, 0), ir.Constant(_INDEX, _UNROLLED), args[3]
            whole = builder.mul(builder.udiv(end, unroll), unroll)
            for part in range(0, PANEL, lanes):
                totals = [cgutils.alloca_once(builder, vector) for _ in range(HEIGHT)]
                for total in totals:
                    builder.store(_every(element, lanes, 0.0), total)
                with cgutils.for_range_slice(builder, begin, whole, unroll, _INDEX, inc=True) as (column, _):
                    for line in range(0, _UNROLLED * PANEL * size if ahead else 0, LINE):
                        place = _at(
                            builder, weights, _times(builder, column, PANEL), ahead * PANEL + part + line // size
                        )
                        builder.call(fetch, [builder.bitcast(place, _BYTE.as_pointer()), *_SOON])
                    for offset in range(_UNROLLED):
                        step(builder.add(column, ir.Constant(_INDEX, offset)), part, totals)
                with cgutils.for_range_slice(builder, whole, end, ir.Constant(_INDEX, 1), _INDEX, inc=True) as (
                    column,
                    _,
                ):
                    step(column, part, totals)
                for row, total in enumerate(totals):
                    place = _at(builder, held, begin, row * PANEL + part)
                    added = builder.fadd(_loaded(builder, place, element, lanes, size), builder.load(total))
                    builder.store(added, builder.bitcast(place, vector.as_pointer()), align=size)
            return context.get_dummy_value()

        return types.void(sums, types.intp, types.intp, types.intp), generate

    return accumulate


_accumulate, _accumulate_streaming = _accumulator(0), _accumulator(16)


def _bf16(builder: Any, pointer: Any) -> Any:
    """32 of them, as float32."""
    bits = builder.zext(_loaded(builder, pointer, ir.IntType(16), PANEL), ir.VectorType(_SHORT, PANEL))
    return builder.bitcast(builder.shl(bits, _every(_SHORT, PANEL, 16)), ir.VectorType(_FLOAT, PANEL))


def _whole(builder: Any, numbers: Any) -> Any:
    """Unsigned integers as float32."""
    return builder.uitofp(numbers, ir.VectorType(_FLOAT, numbers.type.count))


def _factors_q4_1(builder: Any, chunk: Any, group: Any) -> tuple[Any, Any]:
    """Scales and minimums of a group of 32 columns, one for each of 32 outputs."""
    at = _times(builder, group, 64)
    return _bf16(builder, _at(builder, chunk, at, 0)), _bf16(builder, _at(builder, chunk, at, 512))


def _factors_q4_k(builder: Any, chunk: Any, group: Any) -> tuple[Any, Any]:
    at, start = _times(builder, group, 32), ir.Constant(_INDEX, 0)
    scales, minimums = (
        _whole(builder, _loaded(builder, _at(builder, chunk, at, begin), _BYTE, PANEL)) for begin in (0, 256)
    )
    of_rows = (_bf16(builder, _at(builder, chunk, start, begin)) for begin in (4608, 4672))
    return builder.fmul(scales, next(of_rows)), builder.fmul(minimums, next(of_rows))


def _decoder(factors: Callable[..., Any], stride: int, first: int, second: int) -> Any:
    """A column's codes: 8 bytes from `first` + `stride` x column, and 8 from `second`; the even output's is low."""

    @_step
    def decode(typing, tile, chunk):  # type: ignore[no-untyped-def]
        """Weights of a chunk, which is an address, into tile[DEPTH, PANEL]."""

        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element, size = _element(context, signature)
            held = context.make_array(signature.args[0])(context, builder, args[0]).data
            base = builder.inttoptr(args[1], _BYTE.as_pointer())
            wide = ir.VectorType(element, _HALF)
            with cgutils.for_range(builder, ir.Constant(_INDEX, DEPTH // 32)) as groups:
                found = factors(builder, base, groups.index)
                lines = [
                    [_picked(builder, each, each, list(range(half, PANEL, 2))) for each in found] for half in (0, 1)
                ]
                with cgutils.for_range(builder, ir.Constant(_INDEX, 32)) as columns:
                    column = builder.add(_times(builder, groups.index, 32), columns.index)
                    at = _times(builder, column, stride)
                    one, other = (
                        _loaded(builder, _at(builder, base, at, begin), _BYTE, 8) for begin in (first, second)
                    )
                    codes = _picked(builder, one, other, list(range(_HALF)))
                    low = builder.and_(codes, _every(_BYTE, _HALF, 15))
                    high = builder.lshr(codes, _every(_BYTE, _HALF, 4))
                    for half, numbers in enumerate((low, high)):
                        scale, minimum = lines[half]
                        # Rounded twice, as `draftmill.q4nx.tiles.apply_groups` does.
                        weights = builder.fadd(builder.fmul(_whole(builder, numbers), scale), minimum)
                        weights = weights if element == _FLOAT else builder.fpext(weights, wide)
                        place = _at(builder, held, _times(builder, column, PANEL), half * _HALF)
                        builder.store(weights, builder.bitcast(place, wide.as_pointer()), align=size)
            return context.get_dummy_value()

        return types.void(tile, types.intp), generate

    return decode


_decode_q4_1 = _decoder(_factors_q4_1, 8, 1024, 1024 + 2048)
_decode_q4_k = _decoder(_factors_q4_k, 16, 512, 512 + 8)


@_compiled
def _aligned(count, like):  # type: ignore[no-untyped-def]
    raw = np.empty(count + LINE // like.itemsize, like.dtype)
    begin = (-raw.ctypes.data % LINE) // like.itemsize
    return raw[begin : begin + count]


@_compiled
def interleave(rows, blocks, first, last):  # type: ignore[no-untyped-def]
    """rows [n, K] -> blocks [first, last) of [ceil(K / DEPTH), ceil(n / HEIGHT), DEPTH, HEIGHT]; absent rows are 0."""
    count, columns = rows.shape
    for block in range(first, last):
        for row in range(HEIGHT):
            source = block * HEIGHT + row
            for column in range(columns):
                blocks[column // DEPTH, block, column % DEPTH, row] = rows[source, column] if source < count else 0


@_compiled
def multiply(store, kind, columns, blocks, out, first, last, group):  # type: ignore[no-untyped-def]
    """Panels [first, last) of a matrix of K `columns`: writes their outputs in out [n, N].

    store: uint8 [panels, bytes]. blocks: from `interleave`. group: panels whose sums are kept at once, so that a
    stretch of many rows is read from a cache by all of them.
    """
    count, outputs = out.shape
    stretches, height = blocks.shape[:2]
    sums = _aligned(group * height * HEIGHT * PANEL, out).reshape((group, height, HEIGHT, PANEL))
    tile = _aligned(DEPTH * PANEL, out).reshape((DEPTH, PANEL))
    for start in range(first, last, group):
        here = min(group, last - start)
        sums[:here] = 0
        for stretch in range(stretches):
            depth = min(DEPTH, columns - stretch * DEPTH)
            for panel in range(here):
                address = store[start + panel].ctypes.data
                if kind == PLAIN:
                    weights = address + stretch * DEPTH * PANEL * out.itemsize
                else:
                    weights = tile.ctypes.data
                    if kind == Q4_1:
                        _decode_q4_1(tile, address + stretch * CHUNK_BYTES[Q4_1])
                    else:
                        _decode_q4_k(tile, address + stretch * CHUNK_BYTES[Q4_K])
                if height == 1 and kind == PLAIN:
                    _accumulate_streaming(sums[panel, 0], weights, blocks[stretch, 0].ctypes.data, depth)
                    continue
                for block in range(height):
                    _accumulate(sums[panel, block], weights, blocks[stretch, block].ctypes.data, depth)
        for panel in range(here):
            begin = (start + panel) * PANEL
            for row in range(count):
                own = sums[panel, row // HEIGHT, row % HEIGHT]
                for output in range(min(PANEL, outputs - begin)):
                    out[row, begin + output] = own[output % 2 * _HALF + output // 2]


@_compiled
def multiply_strided(rows, matrix, out):  # type: ignore[no-untyped-def]
    """out [n, N] = rows [n, K] . matrix [K, N], of any strides; for one that is used once, and not kept in panels."""
    count, columns = rows.shape
    outputs = matrix.shape[1]
    stretches, height = -(-columns // DEPTH), -(-count // HEIGHT)
    blocks = np.empty((stretches, height, DEPTH, HEIGHT), out.dtype)
    interleave(rows, blocks, 0, height)
    sums = _aligned(height * HEIGHT * PANEL, out).reshape((height, HEIGHT, PANEL))
    tile = _aligned(DEPTH * PANEL, out).reshape((DEPTH, PANEL))
    for begin in range(0, outputs, PANEL):
        width = min(PANEL, outputs - begin)
        sums[:] = 0
        for stretch in range(stretches):
            start = stretch * DEPTH
            depth = min(DEPTH, columns - start)
            tile[:depth, width:] = 0
            # Along what lies together: rows of keys are columns here, rows of values are not.
            if matrix.strides[0] < matrix.strides[1]:
                for output in range(width):
                    for column in range(depth):
                        tile[column, output] = matrix[start + column, begin + output]
            else:
                for column in range(depth):
                    for output in range(width):
                        tile[column, output] = matrix[start + column, begin + output]
            for block in range(height):
                _accumulate(sums[block], tile.ctypes.data, blocks[stretch, block].ctypes.data, depth)
        for row in range(count):
            for output in range(width):
                out[row, begin + output] = sums[row // HEIGHT, row % HEIGHT, output]
