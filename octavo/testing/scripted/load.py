"""The scripted model in the place of a real one: what `api.lifecycle.serve` is given to load."""

from octavo.config import Config
from octavo.serving.loading import Served
from octavo.testing.scripted.backend import ScriptedBackend
from octavo.testing.scripted.script import Script
from octavo.testing.scripted.tokenizer import ScriptedTokenizer
from octavo.text.template import ChatTemplate


def load_scripted(config: Config, script: Script) -> Served:
    """Everything around the model is the real thing."""
    tokenizer = ScriptedTokenizer(script)
    template = ChatTemplate(
        script.chat_template,
        bos_token=tokenizer.bos_token,
        eos_token=tokenizer.eos_token,
        special_tokens=tokenizer.special_tokens,
    )
    return Served(
        name=config.served_name,
        tokenizer=tokenizer,
        template=template,
        backend=ScriptedBackend(script, tokenizer),
        model_len=script.max_model_len,
        vocab_size=tokenizer.vocab_size,
        eos_token_ids=frozenset({tokenizer.eos_id}),
    )
