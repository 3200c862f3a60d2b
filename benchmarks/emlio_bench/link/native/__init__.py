"""The inner loop of an emulated link in C, compiled where there is a compiler."""
