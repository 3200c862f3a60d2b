"""`emlio-bench link`: the accuracy of the emulated link."""
