"""The programs that simulate, synthesise and place a design."""
