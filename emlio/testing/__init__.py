"""Fakes and builders for tests, as public, typed products."""
