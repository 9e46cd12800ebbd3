"""The bytes of the baselines, against committed payloads: engines of two versions must not mistake each other."""

from __future__ import annotations

import pytest

from .golden_baselines import CASES, DATA, payload


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_bytes_equal_the_golden_file(name: str, kind: str) -> None:
    assert payload(name, kind) == (DATA / f"{name}-{kind}.bin").read_bytes()


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in DATA.iterdir()} == {f"{name}-{kind}" for name, kind in CASES}
