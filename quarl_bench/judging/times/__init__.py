"""Times: verdicts on steps of training, and limits that cover several sessions."""
