"""Fakes and builders for tests, public and typed."""
