"""Results files as one HTML page: a module per kind of figure or table, drawn as SVG without scripts."""
