"""Fields are taken one by one, each with its own reader, and none may be left over."""

import pytest

from ratoon.cache.script.fields import FieldError, Fields, array_of, boolean, hexadecimal, integer, text


def test_fields_are_taken_once_and_none_may_be_left() -> None:
    fields = Fields({"a": 1, "b": "x"})
    assert fields.required("a", integer(0, 9)) == 1
    assert fields.optional("c", boolean, True)
    with pytest.raises(FieldError, match="`b` is not a field here"):
        fields.finish()
    assert fields.optional("b", text, "y") == "x"
    fields.finish()


def test_a_field_taken_before_is_missing() -> None:
    fields = Fields({"a": 1})
    fields.required("a", integer(0, 9))
    with pytest.raises(FieldError, match="`a` is missing"):
        fields.required("a", integer(0, 9))


def test_what_is_wrong_is_named_from_the_outside_in() -> None:
    with pytest.raises(FieldError, match=r"`a` item 1 item 0 must be a whole number from 0 to 9"):
        Fields({"a": [[1], [10]]}).required("a", array_of(array_of(integer(0, 9))))


def test_hexadecimal_digits_become_bytes() -> None:
    assert hexadecimal("00Ff") == b"\x00\xff"
    with pytest.raises(FieldError, match="hexadecimal"):
        hexadecimal("0g")


def test_only_an_object_has_fields() -> None:
    with pytest.raises(FieldError, match="object"):
        Fields([1])
