"""The toy checkpoint, the drawings that it learned, and a judge that knows digits but no model."""
