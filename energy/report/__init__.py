"""Reports of epochs and jobs: text, Markdown, JSON, HTML, plots, and comparisons of two jobs."""
