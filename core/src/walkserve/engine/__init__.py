"""Engines: how a kind of component is run."""
