"""Pages of key and value memory, counted apart from the tensors that hold them."""
