"""What a setting is, and how parts register with their settings."""

from .key import Key, alike, flatten
from .objections import Objection, Objections, Problem, problems_of
from .of_plugins import (
    ENTRY_POINTS,
    check_class,
    check_function,
    check_returned,
    is_of_plugin,
    kind_of,
    place_of,
    where_of,
)
from .registry import Registry, import_modules
from .rules import (
    NOT_SET,
    Rule,
    amount,
    batch_rows,
    below,
    fraction,
    is_number,
    layer_width,
    names,
    not_negative,
    not_negative_up_to,
    number_problem,
    one_of,
    positive,
    positive_or_not_set,
    positive_share,
    positive_up_to,
    rule_of,
    steps,
    text,
    whole,
)
