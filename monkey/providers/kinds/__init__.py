"""One module per kind of provider, each with a `monkey.providers.base.Provider` named `KIND`."""
