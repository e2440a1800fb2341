import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import InvalidParameterError
from ratoon.util.sizes import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1048576", 1 << 20),
        ("512MiB", 512 << 20),
        ("512 mib", 512 << 20),
        ("4GB", 4_000_000_000),
        ("1.5GiB", 3 << 29),
        (" 2kb ", 2000),
        ("1b", 1),
        ("0.001GB", 1_000_000),
        ("1TiB", 1 << 40),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "1e9", "4 apples", "1.", ".5GB", "0", "0.1", "0MiB", "nan", "1_000", "٣MiB", "1 M B"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameterError):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1600, "1.6 KiB"),
        (512 << 20, "512 MiB"),
        (3 << 29, "1.5 GiB"),
    ],
)
def test_sizes_are_written_in_the_largest_unit_they_fill(size: int, text: str) -> None:
    assert format_bytes(size) == text


@given(st.integers(1, 1 << 50))
def test_a_written_size_reads_back_nearly_the_same(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=0.06)
