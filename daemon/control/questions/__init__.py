"""The questions of ranks: sizes, matches of predicates, single records, energy."""
