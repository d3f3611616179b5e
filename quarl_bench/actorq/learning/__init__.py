"""The learner: algorithms, losses, replay, and how many samples an insertion allows."""
