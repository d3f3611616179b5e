"""From what a user names to a policy, its environment and its stored measurements."""
