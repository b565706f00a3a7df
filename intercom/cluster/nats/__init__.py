"""Reach other brokers through NATS JetStream; loaded only when the settings name a server."""
