"""`emlio-bench energy`: training over a long link, with the energy of both hosts in joules."""
