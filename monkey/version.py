"""The one place of Monkey's version (driver and collection go together)."""

__version__ = "0.1.0"
