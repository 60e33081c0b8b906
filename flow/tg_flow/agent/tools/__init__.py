"""The kinds of tools that an agent can call, one file each."""
