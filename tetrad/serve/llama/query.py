"""Serve, llama.cpp, query: which model an address asks for, as in /props?model=NAME."""

from __future__ import annotations

from urllib.parse import parse_qs

from tetrad.serve.app import ApiCall
from tetrad.serve.errors import invalid

MOST_FIELDS = 16


def asked_model(call: ApiCall) -> str | None:
    """The name; where none is given, the model that is loaded, if it is the only one."""
    try:
        fields = parse_qs(call.head.query, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise invalid(f"at most {MOST_FIELDS} fields in a query") from None
    if "model" in fields:
        return fields["model"][-1]
    return next(iter(call.store.loaded), None) or call.store.places[0].name
