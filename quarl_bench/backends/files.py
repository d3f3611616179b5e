"""What the two files are called that every artefact has, whichever its backend."""

GOLDEN = "golden.safetensors"  # golden pairs, and the numbers of the observation transform and the action head
MANIFEST = "manifest.json"  # everything else, with the sha256 of every other file
