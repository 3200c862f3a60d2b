"""The tables of the paper DIAL, measured on emlio.aio and the loader beside what it prints; samples and training of its models."""
