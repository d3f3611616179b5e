"""LQCC's judgements, as values: on tasks, on arms of policies, on designs."""
