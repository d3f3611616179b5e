"""The kinds of figures that rows and documents bring: a module finds one kind and draws it."""
