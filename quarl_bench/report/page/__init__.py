"""Results files as one HTML page."""
