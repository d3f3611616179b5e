"""Commands that round a policy, and look for a form of it that stands it."""
