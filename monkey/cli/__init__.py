"""The command line: click commands over the core's API. Every import that costs time happens inside a command."""
