"""That long work was asked to stop and did, at a checkpoint. Imports nothing."""


class Interrupted(Exception):
    """Training stopped at a checkpoint because it was asked to; the message says how it goes on. No user's error."""
