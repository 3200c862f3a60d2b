"""The loss of a training over its steps and over time, for the paper's figure 11."""
