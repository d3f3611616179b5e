"""From a policy that fewer bits break to one that keeps its return."""
