"""The command line: one file a subject; a command parses, calls and prints."""
