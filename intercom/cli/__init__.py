"""Offer intercom as a command: one module a verb, imported when the verb is used."""
