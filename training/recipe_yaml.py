"""YAML as people expect it in a recipe: `1e-3` is a number, `no` is Norwegian, and every field knows its line."""

import re

import yaml


class RecipeLoader(yaml.SafeLoader):
    """YAML 1.2's plain values: PyYAML reads `1e-3` as text, `no` as False and `1:30` as 90."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own class attribute)
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.rpartition(":")[2] not in ("bool", "int", "float", "timestamp")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
RecipeLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
RecipeLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|nan)$"),
    list("-+.0123456789"),
)


def find_line(text: str, keys: tuple[str, ...]) -> int:
    """Return the 1-based line where the field `keys` stands, or the deepest field around it that is there."""
    line = 1
    node = yaml.compose(text, Loader=RecipeLoader)
    for key in keys:
        if isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = node.start_mark.line + 1
            continue
        if not isinstance(node, yaml.MappingNode):
            break
        pair = next(((name, value) for name, value in node.value if name.value == key), None)
        if pair is None:
            break
        name, node = pair
        line = name.start_mark.line + 1
    return line
