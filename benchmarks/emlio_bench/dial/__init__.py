"""The tables of the paper DIAL on emlio.aio and the loader, and the samples and the training of its models."""
