"""Nodes that fail their jobs again and again: a model of each node's rate, claims, evidence."""
