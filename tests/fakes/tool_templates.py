"""Chat templates with tools, written for the tests in the forms that the templates of known models have."""

HERMES = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "Tools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages if not (tools and m.role == 'system') %}<|im_start|>"
    "{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{% if m.role == 'tool' %}<tool_response>\n{{ m.content }}\n</tool_response>{% else %}{{ m.content }}{% endif %}"
    "{% for call in m.tool_calls %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As Qwen 2.5 and Hermes: objects between marks; the system's text stands before the tools."""

LLAMA = (
    "{{ bos_token }}{% if tools %}{% set first = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}<|im_start|>user\nReply with JSON.\n"
    "{% for tool in tools %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}{{ first }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>ipython\n{{ m.content | tojson }}<|im_end|>\n"
    "{% elif 'tool_calls' in m %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    '<|im_start|>assistant\n{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}<|im_end|>\n'
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endif %}{% endfor %}"
    "<|im_start|>assistant\n"
)
"""As Llama 3: a bare object with "parameters", one at a time, and the tools in the first turn of the user."""

MISTRAL = (
    "{{ bos_token }}{% set last = (messages | selectattr('role', 'equalto', 'user') | list)[-1] %}"
    "{% for m in messages %}{% if m.role == 'user' %}"
    "{% if tools and m == last %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {{ m.content }}[/INST]{% elif m.tool_calls is defined %}[TOOL_CALLS] ["
    "{% for call in m.tool_calls %}{% if call.id | length != 9 %}{{ raise_exception('nine letters') }}{% endif %}"
    '{{ (call.function | tojson)[:-1] }}, "id": "{{ call.id }}"}{{ \', \' if not loop.last }}{% endfor %}]'
    "{{ eos_token }}{% elif m.role == 'tool' %}[TOOL_RESULTS] "
    '{"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}[/TOOL_RESULTS]'
    "{% elif m.role == 'system' %}{{ raise_exception('no system') }}{% else %}{{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
"""As Mistral Nemo: a list after a mark, with ids of nine letters; no system role."""

NAMES = (
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}"
    "{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% elif m.role == 'tool' %}"
    "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% else %}{{ m.content }}{% for call in m.tool_calls %}"
    "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments }}{% endfor %}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
"""As Devstral: a bare name, a mark, and the arguments as they come: this one wants them as text."""

XML = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for call in m.tool_calls %}<tool_call>\n<function={{ call.function.name }}>{% for key, value in "
    "call.function.arguments | items %}<parameter={{ key }}>{{ value }}</parameter>{% endfor %}</function>"
    "</tool_call>{% endfor %}{% endfor %}"
)
"""As Qwen 3 Coder: calls that are no JSON."""

SILENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""It knows no tools."""
