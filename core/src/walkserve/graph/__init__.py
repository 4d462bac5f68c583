"""Lowering WalkGraphs to flat plans, once, when a model is loaded."""
