"""The conductor: it decides which Walk starts, owns lives and tracks, and never touches a tensor."""
