"""The choice of records that an epoch consists of: subsets, repeats and weights. Pure."""
