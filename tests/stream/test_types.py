"""Transfer ids and faults are checked where they are made."""

import math

import pytest

from lynx_ascend.errors import ProtocolError, TransferError
from lynx_ascend.stream.types import Faults, TransferId


@pytest.mark.parametrize("bad", ["", "0" * 31, "z" * 32, "0" * 33, 5, " " + "0" * 31])
def test_transfer_ids(bad):
    with pytest.raises(ProtocolError):
        TransferId(bad, 1)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("residual_delay_s", ("1", None, True, -0.1, math.nan, math.inf, [])),
        ("anchor_delay_s", ("1", None, True, -1, math.nan, math.inf, {})),
        ("corrupt", ("anchors", None, 1, True, ["anchor"])),
        ("corrupt_times", ("1", None, True, 1.0, -1)),
        ("stall", ("both", None, 1, {})),
        ("drop_link", ("control", None, False, [])),
    ],
)
def test_a_fault_of_a_wrong_type_or_range_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises(TransferError, match=f"fault {name} must be"):
            Faults(**{name: value})


def test_faults_as_json_brings_them():
    Faults()
    Faults(
        residual_delay_s=1,
        anchor_delay_s=0.5,
        corrupt="anchor",
        corrupt_times=2,
        stall="residual",
        drop_link="",
    )
