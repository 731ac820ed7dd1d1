"""The ground everything stands on: errors, names, locations, time, settings. Standard library only."""
