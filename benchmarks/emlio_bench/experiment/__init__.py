"""Code that the experiments of all commands share: the command, options, data, figures, drawing."""
