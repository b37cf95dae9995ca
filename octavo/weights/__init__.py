"""Model files: finding, reading, naming and decoding them. Every file is untrusted."""
