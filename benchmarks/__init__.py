"""How fast, against what limit, and against whom."""
