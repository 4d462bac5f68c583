"""Workers: they hold components, run nodes in batches, and advance loops by themselves."""
