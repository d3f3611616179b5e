"""Commands that play a policy under schemes."""
