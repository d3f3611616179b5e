"""Policies outside torch: an artefact is a folder that runs alone and proves itself with golden pairs."""
