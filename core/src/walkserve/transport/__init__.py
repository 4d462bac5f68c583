"""How messages and tensors get from one part of the server to another."""
