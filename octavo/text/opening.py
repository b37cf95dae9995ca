"""Opens the tokenizer of a model alone: no weights are read, nothing of a server is loaded."""

from pathlib import Path

from octavo.text.tokenizer import HFTokenizer, load_tokenizer


def open_tokenizer(path: Path, tokenizer_config: Path | None = None) -> HFTokenizer:
    """The tokenizer of a model folder or GGUF file. Raises ModelFileError or NotBuilt.

    tokenizer_config: as for `load_tokenizer`; says nothing of a GGUF file.
    """
    if path.is_dir():
        return load_tokenizer(path, tokenizer_config)
    from octavo.text.gguf_tokenizer import tokenizer_from_gguf
    from octavo.weights.gguf import read_gguf

    file = read_gguf(path)
    try:
        return tokenizer_from_gguf(file.metadata, path.name)
    finally:
        file.close()
