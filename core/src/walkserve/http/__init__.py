"""The HTTP process: routes, errors as clients see them, and its side of the runtime."""
