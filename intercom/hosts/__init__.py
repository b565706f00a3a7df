"""Know agent hosts: where their settings lie, what is entered there, and what their hooks say and understand."""
