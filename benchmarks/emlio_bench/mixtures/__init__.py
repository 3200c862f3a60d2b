"""`emlio-bench mixtures`: several datasets read as one, in given proportions."""
