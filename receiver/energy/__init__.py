"""The energy of a loader's epochs, recorded during the training."""
