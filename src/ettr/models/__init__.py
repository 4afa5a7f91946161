"""How nodes fail: models fitted to lifetimes or counts, each with intervals and a test."""
