"""What this package refuses in words, apart from what goes wrong inside it or inside a library."""


class UnusableError(ValueError):
    """A model, sentence or choice that cannot be used; the message says what to do. Commands turn it into bad input."""
