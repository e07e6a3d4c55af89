"""Where a device's dump departs: measures by hand, and each kind of fault seen by name."""

import math

import numpy as np
import pytest

from draftmill.dflash.forward import Trace
from draftmill.dflash.forward.comparison import compare, read_dump
from draftmill.outcome import Refused

OWN = Trace(a=np.array([[3.0, 4.0], [0.0, 2.0]]), b=np.array([[1.0, 1.0]]))


def test_measures_are_those_of_their_definitions():
    found = compare(OWN, {"a": np.array([[3.0, 4.5], [0.0, 2.0]])}, tolerance=0.2)
    (tensor,) = found.tensors
    assert tensor.largest == 0.5
    assert tensor.relative_rms == pytest.approx(0.5 / math.sqrt(29))
    assert tensor.cosine == pytest.approx((9 + 18 + 4) / math.sqrt(29 * (9 + 20.25 + 4)))
    assert (found.agrees, found.absent) == (True, ("b",))


def test_a_row_departs_by_its_own_size():
    """0.5 of a row of length 5 is a tenth, of a row of length 2 a quarter."""
    rows = OWN["a"] + np.array([[0.0, 0.5], [0.0, 0.5]])
    (tensor,) = compare(OWN, {"a": rows}, tolerance=0.2).tensors
    assert (tensor.departs, tensor.departing_rows) == (1, 1)
    (tensor,) = compare(OWN, {"a": rows}, tolerance=0.05).tensors
    assert (tensor.departs, tensor.departing_rows) == (0, 2)
    assert compare(OWN, {"a": rows}, tolerance=0.25).agrees


def test_the_first_tensor_of_the_pass_is_named():
    found = compare(OWN, {"b": OWN["b"] + 1, "a": OWN["a"] + 1})
    assert found.first is not None and found.first.name == "a"
    assert found.sentence == "departs first at row 0 of a, above 0.001 relative RMS"


def test_numbers_that_are_none_depart_and_spoil_no_measure():
    (tensor,) = compare(OWN, {"a": np.array([[3.0, 4.0], [np.nan, 2.0]])}).tensors
    assert (tensor.departs, tensor.not_finite, tensor.largest, tensor.relative_rms) == (1, 1, 0.0, 0.0)


def test_a_row_of_zeros_agrees_with_zeros_alone():
    zeros = Trace(a=np.zeros((2, 2)))
    assert compare(zeros, {"a": np.zeros((2, 2))}).agrees
    (tensor,) = compare(zeros, {"a": np.array([[0.0, 0.0], [0.0, 1e-9]])}).tensors
    assert (tensor.departs, tensor.cosine) == (1, None)


def test_a_dump_is_refused_by_the_name_or_shape_of_a_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    np.save(tmp_path / "layers.9.output.npy", np.zeros((2, 2)))
    with pytest.raises(Refused) as refused:
        read_dump(tmp_path, OWN)
    assert [each.code for each in refused.value.refusals] == ["dflash.array_shape", "dflash.dump_unknown"]


def test_an_empty_dump_is_no_agreement(tmp_path):
    with pytest.raises(Refused, match="nothing to compare"):
        read_dump(tmp_path, OWN)
