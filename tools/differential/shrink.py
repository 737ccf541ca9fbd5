"""Smaller cases that still differ."""
import copy
import json

from generate import IDENTITY

OPERATORS = [" || ", " && ", " == ", " != ", " <= ", " >= ", " < ", " > ", " | ", " + "]


def shrink(case, differs, runs):
    """The smallest case found in that many runs of `differs`, which says whether a case still shows the difference."""
    left = runs
    again = True
    while again:
        again = False
        for candidate in candidates(case):
            if candidate == case:
                continue
            if left == 0:
                return case
            left -= 1
            if differs(candidate):
                case, again = candidate, True
                break
    return case


def candidates(case):
    """Cases with a part less, large parts first."""
    requests, resources = case["requests"], case["resources"]
    for size in sorted({len(requests) // 2, len(requests) // 4, 1} - {0}, reverse=True):
        if size < len(requests):
            for start in range(0, len(requests), size):
                yield dict(case, requests=requests[:start] + requests[start + size:])
    for index in range(len(resources)):
        yield dict(case, resources=resources[:index] + resources[index + 1:])
    used = json.dumps(resources)
    yield dict(case, requests=[_with_attributes(request, lambda name: name in used or name in IDENTITY) for request in requests])
    for index, resource in enumerate(resources):
        for spec in _smaller(resource["spec"]):
            yield dict(case, resources=resources[:index] + [dict(resource, spec=spec)] + resources[index + 1:])
    for index, request in enumerate(requests):
        for smaller in _smaller_requests(request):
            yield dict(case, requests=requests[:index] + [smaller] + requests[index + 1:])


def _smaller(part):
    """A part of a configuration with a field, an item or an operand less, the outer ones first."""
    if isinstance(part, str):
        yield from simpler_expressions(part)
    keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    for key in keys:
        if key == "params":
            # Mixer dies of some instances without any.
            continue
        smaller = copy.copy(part)
        del smaller[key]
        yield smaller
    for key in keys:
        for value in _smaller(part[key]):
            smaller = copy.copy(part)
            smaller[key] = value
            yield smaller


def _smaller_requests(request):
    names = {name for bag in _bags(request) for name in bag}
    for name in sorted(names):
        yield _with_attributes(request, lambda other: other != name)
    for quota in request.get("quotas", {}):
        yield dict(request, quotas={name: given for name, given in request["quotas"].items() if name != quota})
    if len(request.get("bags", [])) > 1:
        for index in range(len(request["bags"])):
            yield dict(request, bags=request["bags"][:index] + request["bags"][index + 1:])
    for option in ("dedup", "global", "default_words"):
        if request.get(option):
            yield {key: value for key, value in request.items() if key != option}


def _bags(request):
    return request["bags"] if "bags" in request else [request["bag"]]


def _with_attributes(request, wanted):
    bags = [{name: value for name, value in bag.items() if wanted(name)} for bag in _bags(request)]
    return dict(request, bags=bags) if "bags" in request else dict(request, bag=bags[0])


def simpler_expressions(text):
    """The operands of an expression's operators, and the arguments of a function."""
    inner = text[text.find("(") + 1:-1] if text.endswith(")") and "(" in text else None
    parts = [inner] if inner and text.startswith("(") else _split(inner, [", "]) if inner else []
    parts += [part for part in _split(text, OPERATORS) if part != text]
    return [part for part in dict.fromkeys(part.strip() for part in parts) if part and part != text and _balanced(part)]


def _split(text, separators):
    """Splits where no parenthesis and no quote is open."""
    parts, start, depth, quote, index = [], 0, 0, None, 0
    while index < len(text):
        letter = text[index]
        if quote:
            if letter == "\\" and quote != "`":
                index += 1
            elif letter == quote:
                quote = None
        elif letter in "\"`'":
            quote = letter
        elif letter in "([":
            depth += 1
        elif letter in ")]":
            depth -= 1
        elif depth == 0:
            separator = next((each for each in separators if text.startswith(each, index)), None)
            if separator:
                parts.append(text[start:index])
                start = index + len(separator)
                index = start - 1
        index += 1
    return parts + [text[start:]]


def _balanced(text):
    return text.count("(") == text.count(")") and text.count("[") == text.count("]")
