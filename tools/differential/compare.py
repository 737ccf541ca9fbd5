"""What differs between the outcomes of one case. An outcome is as tests/data/differential/README.md describes `expect`."""

# What is left of a validity may differ by this many nanoseconds.
TOLERANCE = 400_000_000


def differences(case, first, second):
    """The places that differ, each with the value on both sides."""
    found = []
    for index, (one, other) in enumerate(zip(first["answers"], second["answers"])):
        _answer("answers[%d]" % index, one, other, found)
    metrics = ["%s.instance.%s" % (resource["metadata"]["name"], resource["metadata"]["namespace"])
               for resource in case["resources"] if resource["spec"].get("compiledTemplate") == "metric"]
    for name in sorted(set(first["files"]) | set(second["files"])):
        one, other = (_lines(side["files"].get(name), metrics) for side in (first, second))
        if one != other:
            found.append(("files[%s]" % name, _without(one, other), _without(other, one)))
    for series in sorted(set(first["prom"]) | set(second["prom"])):
        one, other = first["prom"].get(series), second["prom"].get(series)
        if one is None or other is None or not _same_number(float(one), float(other)):
            found.append(("prom[%s]" % series, one, other))
    return found


def _answer(place, one, other, found):
    if one["code"] != other["code"]:
        found.append((place + ".code", one["code"], other["code"]))
        return
    for field in sorted(set(one) | set(other)):
        a, b = one.get(field), other.get(field)
        if field == "quotas" and a and b and set(a) == set(b):
            for name in a:
                _answer("%s.quotas[%s]" % (place, name), dict(a[name], code=""), dict(b[name], code=""), found)
            continue
        if field == "duration" and abs(a - b) <= TOLERANCE:
            continue
        if field == "status" and a and b and all(", " in side.get("message", "") for side in (one, other)):
            # The first of several denials sets it, and they come in any order.
            continue
        if field == "message":
            a, b = sorted(a.split(", ")), sorted(b.split(", "))
        if field == "route":
            a, b = ({key: sorted(part) if key != "direct" else part for key, part in side.items()} for side in (a, b))
        if a != b:
            found.append(("%s.%s" % (place, field), a, b))


def _same_number(one, other):
    return one == other or (one != one and other != other)


def _lines(lines, metrics):
    return None if lines is None else sorted(_without_call_time(line, metrics) for line in lines)


def _without_call_time(line, metrics):
    """The line of a metric has the time of the call in which it came."""
    for metric in metrics:
        if '"instance":"%s"' % metric in line:
            before, _, rest = line.partition('"time":"')
            return before + rest.partition('"')[2]
        if line.split("\t")[2:3] == [metric]:
            return line.partition("\t")[2]
    return line


def _without(lines, others):
    """The lines that the other side lacks; `None` where there is no such file."""
    if lines is None:
        return None
    rest = list(others or [])
    missing = []
    for line in lines:
        if line in rest:
            rest.remove(line)
        else:
            missing.append(line)
    return missing
