"""Fuzzing of what strangers write: model files, vocabularies, templates; see `scripts/fuzz`."""
