"""Fault injection as a command: a real server, load, an independent checker of every answer, and what goes wrong on purpose."""
