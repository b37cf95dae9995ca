"""The command line: thin; every default comes from `octavo.config`."""
