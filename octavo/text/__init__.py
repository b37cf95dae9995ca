"""Text in and out: tokenizers, templates, detokenisation, stop strings. Knows no tensors."""
