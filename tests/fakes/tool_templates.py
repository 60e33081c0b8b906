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

KIMI = (
    "{% if tools %}<|im_start|>tool_declare\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}\n{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}<|tool_calls_section_begin|>{% for call in m.tool_calls %}<|tool_call_begin|>{{ call.id }}"
    "<|tool_call_argument_begin|>{{ call.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
    "<|tool_calls_section_end|>{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As Kimi K2: a section of calls, where the id of a call has its tool's name."""

DEEPSEEK = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls %}{% if loop.first %}<\uff5ctool\u2581calls\u2581begin\uff5c>{% endif %}"
    "<\uff5ctool\u2581call\u2581begin\uff5c>{{ call.function.name }}<\uff5ctool\u2581sep\uff5c>"
    "{{ '' + call.function.arguments }}<\uff5ctool\u2581call\u2581end\uff5c>"
    "{% if loop.last %}<\uff5ctool\u2581calls\u2581end\uff5c>{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
"""As DeepSeek V3.1: a section of bare names, each with a mark and its arguments, which this one wants as text."""

COMMAND = (
    "{% if tools %}{% for tool in tools %}{{ tool.function | tojson }}{% endfor %}{% endif %}{% for m in messages %}"
    "<|im_start|>{{ m.role }}\n{% if m.role == 'tool' %}"
    '[{"tool_call_id": "0", "results": {"0": {{ m.content | tojson }}}}]'
    "{% elif m.tool_calls %}<|START_ACTION|>[\n{% for call in m.tool_calls %}"
    '    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ call.function.name }}", '
    "\"parameters\": {{ call.function.arguments | tojson }}}{{ ',' if not loop.last }}\n{% endfor %}"
    "]<|END_ACTION|>{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As Cohere's Command R7B: a list of numbered objects with keys of their own."""

QWEN_CODER = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n{% endif %}"
    "<tools>{% for tool in tools %}<function><name>{{ tool.function.name }}</name>"
    "{{ tool.function.parameters | tojson }}</function>{% endfor %}</tools><|im_end|>\n{% endif %}"
    "{% for m in messages if not (tools and m.role == 'system') %}"
    "<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{{ m.content }}{% for call in m.tool_calls %}"
    "\n<tool_call>\n<function={{ call.function.name }}>\n"
    "{% for key, value in call.function.arguments | items %}<parameter={{ key }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As Qwen 3 Coder: arguments between tags."""

DEEPSEEK_V3 = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls %}{{ '<\uff5ctool\u2581calls\u2581begin\uff5c>' if loop.first else '\n' }}"
    "<\uff5ctool\u2581call\u2581begin\uff5c>{{ call.type }}<\uff5ctool\u2581sep\uff5c>{{ call.function.name }}\n"
    "```json\n{{ call.function.arguments | tojson }}\n```<\uff5ctool\u2581call\u2581end\uff5c>"
    "{% if loop.last %}<\uff5ctool\u2581calls\u2581end\uff5c>{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
"""As vLLM's for DeepSeek V3 and R1: a section of calls of a kind, whose arguments stand in a fence."""

PYTHON = (
    "{% for m in messages %}<|im_start|>{{ 'ipython' if m.role == 'tool' else m.role }}\n"
    "{% if tools and m.role == 'user' %}{{ tools | tojson }}\n{% endif %}{{ m.content }}{% if m.tool_calls %}["
    '{% for call in m.tool_calls %}{{ call.function.name }}({% for key in call.function.arguments %}{{ key }}="'
    "{{ call.function.arguments[key] }}\"{{ ', ' if not loop.last }}{% endfor %}){{ ', ' if not loop.last }}"
    "{% endfor %}]{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As vLLM's for Llama 4: a list of calls in Python, without a mark."""

LLAMA_4 = (
    "{% for m in messages %}<|im_start|>{{ 'ipython' if m.role == 'tool' else m.role }}\n"
    "{% if tools and m.role == 'user' %}{{ tools | tojson }}\n{% endif %}"
    "{% if m.tool_calls %}<|python_start|>{{ m.content }}<|python_end|>{% for call in m.tool_calls %}"
    '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}{% endfor %}'
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""As Llama 4's own: marks around the text, also an empty one, and a bare object after them."""

UNKNOWN = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for call in m.tool_calls %}CALL {{ call.function.name }} WITH {{ call.function.arguments }}{% endfor %}"
    "{% endfor %}"
)
"""It names tools, and its calls have none of the known forms."""

SILENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
"""It knows no tools."""
