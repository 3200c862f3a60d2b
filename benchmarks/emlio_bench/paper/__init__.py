"""The paper's figures: the same lines, measured here, beside the paper's numbers."""
