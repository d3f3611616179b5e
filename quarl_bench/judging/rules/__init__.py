"""How claims are judged: frozen values that say what is measured, how it is decided, its unit, and its words."""
