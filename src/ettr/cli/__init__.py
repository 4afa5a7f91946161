"""The command line: one file for each command; a command parses, calls and prints."""
