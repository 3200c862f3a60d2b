"""Running a race: rounds, single runs, their meters."""
