"""The configuration of a loader, and facts about its process and its job."""
