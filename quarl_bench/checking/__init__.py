"""What `quarl check` computes: one policy, many schemes, one answer."""
