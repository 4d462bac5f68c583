"""One request's copy of one stream: the end that is written, and the end that is read."""
