"""Placeholders of programs and templates in text: what must come out of a translation letter by letter."""

import re
from collections import Counter

# Without the space flag of printf: "100% sure" is no placeholder.
PLACEHOLDER = re.compile(
    r"""
      \{\{[^{}\n]*\}\}                        # {{ name }}: Mustache, Jinja, Angular
    | \{%[^\n]*?%\}                           # {% if name %}
    | \$\{[^{}\s]*\}                          # ${name}
    | \{[\w.:!\[\]-]*\}                       # {name}, {0}, {price:.2f}
    | %\([\w.]+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z] # %(name)s
    | %(?:\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?[sdiufFeEgGxXoc@](?!\w)  # %s, %1$d, %.2f
    """,
    re.VERBOSE,
)


def placeholders(text: str) -> Counter[str]:
    """Return the placeholders in a text and how often each stands there."""
    return Counter(PLACEHOLDER.findall(text))
