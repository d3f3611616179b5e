"""Where an artefact runs, and what is measured there."""
