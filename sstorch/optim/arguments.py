"""What kind of number a setting is."""


def is_number(value: object, kind: type) -> bool:
    """Whether ``value`` is a number of a kind of :mod:`numbers`, and no boolean."""
    return isinstance(value, kind) and not isinstance(value, bool)
