"""`octavo models`: the models on this machine."""
