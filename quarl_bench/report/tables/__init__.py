"""Tables of the documentation, as lines of Markdown made of what is stored."""
