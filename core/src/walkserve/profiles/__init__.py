"""Where the time of one request went: as clients are told it, summed up, and drawn."""
