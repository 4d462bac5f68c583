"""The toy checkpoint, a disc that moves as it is told, and how it is made."""
