"""A model whose words are known: the real server around a double that emits given tokens.

`python -m octavo.testing.scripted --port P --script S.json [any serve flag]`. The script:

replies            list of `{"pieces": [...], "when": "text", "end": true}`; required. A piece is
                   one token: a string, `{"hex": "f09f"}` (raw bytes) or `{"special": "<call>"}`.
                   `when`: the reply serves requests whose prompt contains the text; replies without
                   it are used in turn. `end`: after the pieces comes EOS; where that is banned or
                   did not end the answer, and with `end` false, the pieces start over.
chat_template      Jinja text (default: role-join)
max_model_len      tokens (4096)
step_delay_ms      sleep in each step (0)
fail_at_step       the step of this number, counted from 1, raises (never)
die_at_step        the engine thread dies at this step (never)
"""
