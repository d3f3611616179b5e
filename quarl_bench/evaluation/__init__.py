"""Playing a policy: episodes in batches, rollouts, and what is measured beside the return."""
