"""These run in the clients' environment, by `make test-clients`."""

collect_ignore_glob = ["with_*.py", "scripted.py"]
