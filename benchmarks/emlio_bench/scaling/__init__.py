"""`emlio-bench scaling`: several daemons, each behind a slow line, and a straggler."""
