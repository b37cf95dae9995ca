"""A description of a model as text for people and as JSON. Strangers' strings are escaped."""

import json
from collections.abc import Iterator
from typing import Any

from octavo.cli.terminal import escaped, size_in_words, table
from octavo.serving.describe import Description

_TEMPLATE_LINES = 4
_LINE_CHARS = 90


def as_json(name: str, found: Description, with_tensors: bool) -> str:
    """An object; sizes in bytes, `null` for what the files do not tell."""
    context = found.sizes.get("context")
    memory, vocabulary = found.memory, found.vocabulary
    values: dict[str, Any] = {
        "name": name,
        "path": str(found.path),
        "format": found.format,
        "title": found.title,
        "architecture": found.architecture,
        "servable": found.refusal is None,
        "refusal": found.refusal,
        "parameters": found.parameters,
        "weights_bytes": found.size_bytes,
        "sizes": dict(found.sizes),
        "types": [share._asdict() for share in found.types],
        "tokenizer": None
        if vocabulary is None
        else {
            "kind": vocabulary.kind,
            "vocab_size": vocabulary.size,
            "special_tokens": vocabulary.special,
            "bos": {"id": vocabulary.bos_id, "token": vocabulary.bos},
            "eos": {"id": vocabulary.eos_id, "token": vocabulary.eos},
        },
        "chat_template": found.template,
        "faults": dict(found.faults),
        "memory": {
            "process_bytes": memory.process_bytes,
            "weights_bytes": memory.weights_bytes,
            "kv_bytes_per_token": memory.kv_token_bytes,
            "total_bytes_at_full_context": context and memory.total_bytes(context),
        },
    }
    if with_tensors:
        values["tensors"] = [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "type": tensor.type.value,
                "size_bytes": tensor.data.nbytes,
            }
            for tensor in found.tensors
        ]
    return json.dumps(values, indent=2)


def as_text(name: str, found: Description, with_tensors: bool) -> str:
    """Lines of name and value, then the tables."""
    rows = [
        ("model", escaped(name)),
        ("path", escaped(str(found.path))),
        *_heads(found),
        *_vocabulary(found),
        *_template(found),
        *_memory(found),
    ]
    parts = [table(rows), "\n", _types(found)]
    if with_tensors:
        parts += ["\n", _tensors(found)]
    return "".join(parts)


def _heads(found: Description) -> Iterator[tuple[str, str]]:
    if found.title:
        yield "title", escaped(found.title, _LINE_CHARS)
    yield "format", f"{found.format}, weights of {size_in_words(found.size_bytes)}"
    yield "architecture", escaped(found.architecture, _LINE_CHARS)
    yield "served", "yes" if found.refusal is None else f"no: {escaped(found.refusal)}"
    yield "parameters", f"{found.parameters:,}"
    sizes = ", ".join(f"{value:,} {name}" for name, value in found.sizes.items())
    yield "sizes", sizes.replace("_", " ") or "not told"


def _vocabulary(found: Description) -> Iterator[tuple[str, str]]:
    vocabulary = found.vocabulary
    if vocabulary is None:
        yield "tokenizer", f"cannot be read: {escaped(found.faults.get('vocabulary', ''))}"
        return
    yield "tokenizer", f"{vocabulary.kind}, {vocabulary.size:,} tokens"
    ends = [("bos", vocabulary.bos, vocabulary.bos_id), ("eos", vocabulary.eos, vocabulary.eos_id)]
    told = [f"{end} {escaped(text or '', 40)} ({number})" for end, text, number in ends if text]
    yield "", ", ".join([*told, f"{vocabulary.special:,} control tokens"])


def _template(found: Description) -> Iterator[tuple[str, str]]:
    if "template" in found.faults:
        yield "chat template", f"cannot be read: {escaped(found.faults['template'])}"
    elif found.template is None:
        yield "chat template", "none: chats are joined as `role: content` lines"
    else:
        lines = found.template.splitlines() or [""]
        yield "chat template", f"{len(found.template):,} characters; --template prints it"
        for line in lines[:_TEMPLATE_LINES]:
            yield "", "| " + escaped(line, _LINE_CHARS)


def _memory(found: Description) -> Iterator[tuple[str, str]]:
    memory, context = found.memory, found.sizes.get("context")
    yield "memory", f"{size_in_words(memory.weights_bytes)} weights"
    if memory.kv_token_bytes is None:
        yield "", "KV cache: not known, as the sizes are not told"
        return
    per_thousand = size_in_words(1000 * memory.kv_token_bytes)
    yield "", f"{per_thousand} KV cache for each 1,000 tokens in it (float16)"
    yield "", f"about {size_in_words(memory.process_bytes)} for the process"
    total = memory.total_bytes(context or 0)
    if context and total is not None:
        yield "", f"{size_in_words(total)} together at the full context of {context:,} tokens"


def _types(found: Description) -> str:
    rows = [("type", "tensors", "parameters", "bytes", "bits each")]
    for share in found.types:
        bits = 8 * share.size_bytes / max(share.parameters, 1)
        counts = (f"{share.tensors:,}", f"{share.parameters:,}", f"{share.size_bytes:,}")
        rows.append((share.type, *counts, f"{bits:.2f}"))
    return table(rows, right=(1, 2, 3, 4))


def _tensors(found: Description) -> str:
    rows = [("tensor", "shape", "type", "bytes")]
    for tensor in found.tensors:
        shape = " x ".join(map(str, tensor.shape))
        rows.append(
            (escaped(tensor.name, 200), shape, tensor.type.value, f"{tensor.data.nbytes:,}")
        )
    return table(rows, right=(3,))
