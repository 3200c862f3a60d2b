"""The files below a dataset's folder, for programs that know nothing of EMLIO."""
