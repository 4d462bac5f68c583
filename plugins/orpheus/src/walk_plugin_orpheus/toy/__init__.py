"""The toy checkpoint, and a listener that checks what it says."""
