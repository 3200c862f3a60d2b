"""A contest of those who set a loader: a rule, simpler rules, or a setting that never changes, against the best of a grid."""
