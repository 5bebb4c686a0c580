"""The tests mirror the package; shared tools are imported as `tests.name`."""
