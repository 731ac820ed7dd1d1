"""What everything else builds on: errors, names, locations, time, settings. Standard library only."""
