"""Monkey's driver: decides what runs where and when, records it and shows it."""
