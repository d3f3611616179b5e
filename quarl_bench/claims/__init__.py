"""The papers' sentences as data (one TOML file per paper), and the judge that holds measurements against them."""
