"""Warnings: what of a request was passed over, told in a header of its response."""

import json
from collections.abc import Mapping, Sequence

MAX_NAMED_FIELDS = 8
MAX_LENGTH = 1000


def unknown_field_warning(names: Sequence[str]) -> dict[str, str]:
    """Return the header that names the fields which were ignored; none where there are none."""
    if not names:
        return {}
    shown = ", ".join(names[:MAX_NAMED_FIELDS]) + (", ..." if len(names) > MAX_NAMED_FIELDS else "")
    return with_warnings({}, [f"ignored unknown fields: {shown}"])


def with_warnings(headers: Mapping[str, str], texts: Sequence[str]) -> dict[str, str]:
    """Return headers with further warnings; the same where there are none."""
    values = [headers["Warning"]] if "Warning" in headers else []
    values += [f"299 ratoon {json.dumps(text)[:MAX_LENGTH]}" for text in texts]
    return {**headers, "Warning": ", ".join(values)} if values else dict(headers)
