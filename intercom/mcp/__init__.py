"""Be an MCP server in an agent host: the tools of a session, and its messages pushed into the host."""
