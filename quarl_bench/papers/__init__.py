"""The papers: their claims, their printed numbers, their tables and figures, and rules of their own."""
