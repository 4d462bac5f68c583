"""A request's journal: its steps and outcomes, described; enough to replay its tracks."""
