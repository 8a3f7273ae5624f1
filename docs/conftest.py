"""What doctests leave out: the service needs the extra ``serve``, and tests/deploy asks it."""

collect_ignore = ["service.py"]
