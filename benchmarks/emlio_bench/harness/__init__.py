"""Code that all benchmarks share: settings, samples, figures, tables, pages and plots."""
