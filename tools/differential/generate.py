"""Random configurations and requests from a seed, in the format of tests/data/differential."""
import json
import os
import random

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMESPACE = "shop"
DEFAULT_NAMESPACE = "istio-system"

with open(os.path.join(ROOT, "tests/data/differential/manifest.json"), encoding="utf-8") as manifest:
    MANIFEST = json.load(manifest)

# The attributes of each type.
ATTRIBUTES = {}
for _name, _info in MANIFEST["spec"]["attributes"].items():
    ATTRIBUTES.setdefault(_info["valueType"], []).append(_name)
IDENTITY = {"context.reporter.kind", "destination.namespace", "source.namespace"}
DECLARED = {name: kind for kind, names in ATTRIBUTES.items() for name in names if name not in IDENTITY}

TEXTS = ["", "x", "/admin", "a b", "GET", "héllo", "10.0.0.1", "a.b", "Straße", "1_000", "NaN", "5", "-1", "tab\there", 'a"b', "u@example.com"]
NUMBERS = [0, 1, 2, 42, 200, 404, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLES = [0.0, -0.0, 0.25, 1.5, 1e-7, 123456789.125, 1e20, 1e21, "Infinity", "-Infinity", "NaN"]
ADDRESSES = ["0a000001", "c0a80105", "00000000", "20010db8000000000000000000000001", "00000000000000000000ffff0a000001", "0a0000", ""]
TIMES = [(0, 0), (-1, 0), (1557126489, 0), (1557126489, 123456789), (951782400, 0), (4102444800, 5), (-2208988800, 500000000)]
DURATIONS = [(0, 0), (0, 1), (0, 1500), (5, 0), (90, 0), (3600, 0), (-1, 0), (31536000, 0)]
KEYS = ["x", "a.b", ":path", "user-agent", "K", ""]
DNS_NAMES = ["a.com", "B.Example.com.", "bücher.example", "xn--bcher-kva.example", "a..b", "", "evil.com", "evil\u3002com", "\uff45vil.com", "e\u00advil.com", "bu\u0308cher.example"]
URIS = ["http://a.com/x", "HTTP://A.com/x", "http://a.com:80/x", "urn:x", "/rel", "", "http://evil\u3002com/x", "http://evil.com/x"]
# Strings that are not UTF-8, in hexadecimal digits.
STRINGS_OF_BYTES = ["ff", "78ff", "c3", "2f61646d696eff", "eda080"]
EMAILS = ["u@example.com", "u@EXAMPLE.com", "U@example.com", "bad", "", "Bob <u@example.com>", "u@example.com (Bob)", "u@\uff45xample.com"]

# The type in which an attribute is sent, and its values.
SENT = {
    "STRING": ("string", TEXTS),
    "INT64": ("int64", NUMBERS),
    "DOUBLE": ("double", DOUBLES),
    "BOOL": ("bool", [True, False]),
    "IP_ADDRESS": ("bytes", ADDRESSES),
    "TIMESTAMP": ("timestamp", TIMES),
    "DURATION": ("duration", DURATIONS),
    "DNS_NAME": ("string", DNS_NAMES),
    "URI": ("string", URIS),
    "EMAIL_ADDRESS": ("string", EMAILS),
}

# What a constant of a type looks like.
CONSTANTS = {
    "STRING": ['"x"', '"/admin"', "`raw`", '"a b"', '"\\x2fadmin"', '"1_000"', '"10.0.0.1"', '"5" + "s"'],
    "INT64": ["0", "1", "42", "200"],
    "DOUBLE": ["0.0", "1.5", "1e3", ".5", "1e308"],
    "BOOL": ["true", "false"],
    "IP_ADDRESS": ['ip("10.0.0.1")', 'ip("::1")', 'ip("2001:db8::1")'],
    "TIMESTAMP": ['timestamp("2019-05-06T07:08:09Z")', 'timestamp("2019-05-06T09:08:09.5+02:00")'],
    "DURATION": ['"90s"', '"1.5s"', '"1h30m"', '"5ms"'],
    "STRING_MAP": ["emptyStringMap()"],
    "DNS_NAME": ['dnsName("a.com")', 'dnsName("B.Example.com.")', 'dnsName("evil.com")', 'dnsName("bu\u0308cher.example")'],
    "URI": ['uri("http://a.com/x")', 'uri("urn:x")', 'uri("http://evil.com/x")'],
    "EMAIL_ADDRESS": ['email("u@example.com")', 'email("u@EXAMPLE.com")'],
}
# What is a literal and what is an expression where the template is not compiled in.
REMOTE_TEXTS = ["`user-` + %s + `-bad`", "'user-' + %s", '"user-" + %s + "-bad"', "'%s'", '"%s"']
COMPARABLE = ["STRING", "INT64", "DOUBLE", "BOOL", "IP_ADDRESS", "TIMESTAMP", "DNS_NAME", "URI", "EMAIL_ADDRESS"]
ORDERED = ["STRING", "INT64", "DOUBLE", "TIMESTAMP"]
VALUES = [kind for kind in CONSTANTS if kind != "STRING_MAP"]


class Generator:
    """One random case; equal seeds make equal cases. With an adapter server, some cases have handlers that it serves."""

    def __init__(self, seed, server=None):
        self.seed, self.server = str(seed), server
        self.random = random.Random(self.seed)
        self.pick = self.random.choice

    def chance(self, probability):
        return self.random.random() < probability

    def some(self, items, most):
        return [self.pick(items) for _ in range(self.random.randint(1, most))]

    # Expressions

    def expression(self, kind, depth=2):
        if depth == 0 or self.chance(0.2):
            return self.leaf(kind)
        if self.chance(0.4):
            return self.fallback(kind, depth)
        if self.chance(0.1):
            return "conditional(%s, %s, %s)" % (
                self.expression("BOOL", depth - 1), self.expression(kind, depth - 1), self.expression(kind, depth - 1))
        compound = getattr(self, "compound_" + kind.lower(), None)
        return compound(depth - 1) if compound else self.fallback(kind, depth)

    def leaf(self, kind):
        names = [name for name in ATTRIBUTES.get(kind, []) if name not in IDENTITY]
        if names and self.chance(0.6):
            return self.pick(names)
        return self.pick(CONSTANTS[kind])

    def fallback(self, kind, depth):
        names = [name for name in ATTRIBUTES.get(kind, []) if name not in IDENTITY]
        choices = self.some(names, 2) if names else []
        if kind == "STRING" and self.chance(0.4):
            choices.append(self.entry())
        return " | ".join(choices + [self.pick(CONSTANTS[kind])])

    def entry(self):
        return "%s[%s]" % (self.pick(ATTRIBUTES["STRING_MAP"]), self.pick(['"x"', '"a.b"', '":path"', "request.method"]))

    def compound_string(self, depth):
        operand = lambda: self.expression("STRING", depth)
        return self.pick([
            lambda: "%s + %s" % (self.leaf("STRING"), self.leaf("STRING")),
            lambda: "toLower(%s)" % operand(),
            lambda: "conditionalString(%s, %s, %s)" % (self.expression("BOOL", depth), operand(), operand()),
            self.entry,
        ])()

    def compound_int64(self, depth):
        return self.pick([
            lambda: "size(%s)" % self.expression("STRING", depth),
            lambda: "%s + %s" % (self.leaf("INT64"), self.leaf("INT64")),
        ])()

    def compound_bool(self, depth):
        text = lambda: self.expression("STRING", depth)

        def comparison(kinds, operators):
            kind = self.pick(kinds)
            return "(%s) %s (%s)" % (self.expression(kind, depth), self.pick(operators), self.expression(kind, depth))
        return self.pick([
            lambda: comparison(COMPARABLE, ["==", "!="]),
            lambda: comparison(ORDERED, ["<", "<=", ">", ">="]),
            lambda: "(%s) %s (%s)" % (self.expression("BOOL", depth), self.pick(["&&", "||"]), self.expression("BOOL", depth)),
            lambda: "match(%s, %s)" % (text(), self.pick(['"a*"', '"*n"', '"x"', '"*"'])),
            lambda: "(%s).startsWith(%s)" % (text(), text()),
            lambda: "(%s).endsWith(%s)" % (text(), text()),
            lambda: "%s.matches(%s)" % (self.pick(['"^/adm"', '"\\\\d+"', '"[a-z]+"']), text()),
        ])()

    def value(self):
        """An expression that may stand in a Value."""
        return self.expression(self.pick(VALUES + ["STRING"] * 3))

    def params(self, params):
        """The same, with a fault now and then: such an instance is dropped, or refused."""
        if params and self.chance(0.04):
            params[self.pick(sorted(params))] = self.pick(["nosuch.attribute", '"5s"', 7, True, ""])
        return params

    # Resources

    def resource(self, kind, name, spec):
        namespace = DEFAULT_NAMESPACE if kind == "rule" and self.chance(0.1) else NAMESPACE
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "config.istio.io/v1alpha2", "kind": kind, "metadata": metadata, "spec": spec}

    def instance(self, name, template, params):
        return self.resource("instance", name, {"compiledTemplate": template, "params": self.params(params)})

    def handler(self, name, adapter, params):
        if self.chance(0.03):
            params = dict(params, nosuch=1)
        return self.resource("handler", name, {"compiledAdapter": adapter, "params": params})

    def reference(self, name, kind):
        return self.pick(["%s.%s" % (name, NAMESPACE), "%s.%s.%s" % (name, kind, NAMESPACE)])

    def rules(self, actions, operations=False):
        """Rules with some of the possible actions, which are pairs of a handler and its instances."""
        rules = []
        for index in range(self.random.randint(1, 4)):
            chosen = []
            for handler, instances in self.some(actions, 3):
                names = sorted({self.reference(name, "instance") for name in self.some(instances, 2)})
                chosen.append({"handler": self.reference(handler, "handler"), "instances": names})
            spec = {"actions": chosen}
            if self.chance(0.7):
                spec["match"] = self.expression("BOOL")
            if operations:
                for field in ["requestHeaderOperations", "responseHeaderOperations"]:
                    if self.chance(0.5):
                        spec[field] = [self.operation() for _ in range(self.random.randint(1, 2))]
            rules.append(self.resource("rule", "r%d" % index, spec))
        return rules

    def operation(self):
        operation = {"name": self.pick(["x-a", "x-b", ":path", "cookie"]), "operation": self.pick(["REPLACE", "REMOVE", "APPEND"])}
        if self.chance(0.8):
            operation["values"] = [self.expression("STRING", 1) for _ in range(self.random.randint(0, 2))]
        return operation

    def caching(self, params, interval, uses):
        if self.chance(0.5):
            params[interval] = self.pick(["1.5s", "10s", "1m30s", "1h"])
        if self.chance(0.5):
            params[uses] = self.pick([1, 5, 10000, 2147483647])
        return params

    def check_handler(self, name):
        adapter = self.pick(["denier", "listchecker", "listchecker", "noop"])
        params = {}
        if adapter == "denier":
            if self.chance(0.7):
                params["status"] = {"code": self.pick([3, 5, 7, 9, 16]), "message": self.pick(["", "no", "go away"])}
            self.caching(params, "validDuration", "validUseCount")
        if adapter == "listchecker":
            kind = self.pick(["STRINGS", "CASE_INSENSITIVE_STRINGS", "IP_ADDRESSES", "REGEX"])
            entries = {"IP_ADDRESSES": ["10.0.0.1", "10.0.0.0/8", "2001:db8::/32"], "REGEX": ["^/adm", "[a-z]+", "^$"]}
            params = {"entryType": kind, "overrides": self.some(entries.get(kind, TEXTS[1:]), 3), "blacklist": self.chance(0.5)}
            self.caching(params, "cachingInterval", "cachingUseCount")
        return self.handler(name, adapter, params)

    def checks(self, operations=False):
        handlers = [self.check_handler("h%d" % index) for index in range(self.random.randint(1, 3))]
        instances = [self.instance("i%d" % index, "listentry", {"value": self.value()}) for index in range(2)]
        names = [instance["metadata"]["name"] for instance in instances]
        actions = [(handler["metadata"]["name"], names) for handler in handlers]
        return handlers + instances, actions, operations

    def remote_checks(self):
        """Checks by handlers of the adapter server: constants of their instances are written in another way."""
        resources = list(self.server.resources)
        for index in range(self.random.randint(1, 2)):
            handler = self.check_handler("h%d" % index)
            adapter = self.server.names.get(handler["spec"].pop("compiledAdapter"))
            if adapter:
                handler["spec"].update(adapter=adapter, connection={"address": self.server.address})
                resources.append(handler)
        handlers = [each["metadata"]["name"] for each in resources if each["kind"] == "handler"]
        names = ["i%d" % index for index in range(2)]
        for name in names:
            value = self.pick([self.value(), self.pick(REMOTE_TEXTS) % self.leaf("STRING")])
            instance = self.instance(name, "listentry", {"value": value})
            instance["spec"]["template"] = self.server.names[instance["spec"].pop("compiledTemplate")]
            resources.append(instance)
        return resources, [(handler, names) for handler in handlers], False

    def quotas(self):
        dimensions = {key: self.value() for key in self.random.sample(["source", "d1", "a.b"], self.random.randint(0, 2))}
        instances = [self.instance("quota0", "quota", {"dimensions": dimensions}), self.instance("quota1", "quota", {"dimensions": {}})]
        limits = []
        for name in ["quota0", "quota1"]:
            limit = {"name": "%s.instance.%s" % (name, NAMESPACE), "maxAmount": self.pick([1, 5, 10, 100])}
            if self.chance(0.5):
                limit["validDuration"] = self.pick(["100s", "300s", "3600s"])
            if self.chance(0.4):
                key = self.pick(["source", "d1", "a.b"])
                limit["overrides"] = [{"maxAmount": 3, "validDuration": "60s", "dimensions": {key: self.pick(TEXTS[1:])}}]
            limits.append(limit)
        params = {"quotas": limits, "minDeduplicationDuration": "600s"}
        return [self.handler("hq", "memquota", params)] + instances, [("hq", ["quota0", "quota1"])], False

    def logs(self):
        def variables():
            return {key: self.value() for key in self.random.sample(["d1", "a.b", "ü", "source"], self.random.randint(0, 3))}
        log = {"variables": variables()}
        if self.chance(0.5):
            log["severity"] = self.expression("STRING", 1)
        if self.chance(0.5):
            log["timestamp"] = self.expression("TIMESTAMP", 1)
        instances = [
            self.instance("log0", "logentry", self.params(log)),
            self.instance("met0", "metric", {"value": self.value(), "dimensions": variables()}),
        ]
        handlers = []
        for index in range(self.random.randint(1, 2)):
            name = "hs%d" % index
            params = {"logStream": "FILE", "outputPath": "out/%s-%s.log" % (NAMESPACE, name), "outputAsJson": self.chance(0.7)}
            if self.chance(0.5):
                params["severityLevels"] = {self.pick(["x", "WARNING", "info", ""]): self.pick(["INFO", "WARNING", "ERROR"])}
            if self.chance(0.3):
                params["metricLevel"] = "WARNING"
            handlers.append(self.handler(name, "stdio", params))
        return handlers + instances, [(handler["metadata"]["name"], ["log0", "met0"]) for handler in handlers], False

    def metrics(self):
        instances, infos = [], []
        for index in range(self.random.randint(1, 3)):
            name = "pm%d" % index
            labels = self.random.sample(["d1", "d_2", "Dim3"], self.random.randint(0, 2))
            value = self.expression(self.pick(["INT64", "DOUBLE", "DURATION"]))
            if self.chance(0.05):
                value = "true"
            instances.append(self.instance(name, "metric", {"value": value, "dimensions": {label: self.value() for label in labels}}))
            info = {"instance_name": "%s.instance.%s" % (name, NAMESPACE), "name": "m_" + name, "label_names": labels}
            if self.chance(0.05):
                info["label_names"] = ["absent"]
            info["kind"] = self.pick(["GAUGE", "COUNTER", "DISTRIBUTION"])
            if info["kind"] == "DISTRIBUTION":
                info["buckets"] = self.pick([
                    {"explicit_buckets": {"bounds": [1e-5, 1, 4000000, 1e20]}},
                    {"linear_buckets": {"num_finite_buckets": 5, "width": 0.1, "offset": -1}},
                    {"exponential_buckets": {"num_finite_buckets": 4, "growth_factor": 3, "scale": 0.001}},
                ])
            infos.append(info)
        names = [instance["metadata"]["name"] for instance in instances]
        return [self.handler("hp", "prometheus", {"metrics": infos})] + instances, [("hp", names)], False

    # Requests

    def bag(self, fullness):
        bag = {}
        for name, kind in DECLARED.items():
            if not self.chance(fullness):
                continue
            if self.chance(0.01):
                # Another type than the declared one.
                kind = self.pick(sorted(SENT))
            if kind == "STRING_MAP":
                entries = self.random.sample(KEYS, self.random.randint(0, 2))
                bag[name] = ["string_map", {key: self.pick(TEXTS) for key in entries}]
            else:
                sent, values = SENT[kind]
                if sent == "string" and self.chance(0.02):
                    sent, values = "string_bytes", STRINGS_OF_BYTES
                value = self.pick(values)
                bag[name] = [sent, list(value) if isinstance(value, tuple) else value]
        return bag

    def identify(self, bag):
        """The attributes that say which namespace's rules apply."""
        namespace = NAMESPACE if self.chance(0.9) else self.pick(["other", ""])
        if self.chance(0.2):
            bag["context.reporter.kind"] = ["string", "outbound"]
            bag["source.namespace"] = ["string", namespace]
        else:
            bag["destination.namespace"] = ["string", namespace]
        return bag

    def check(self):
        request = {"kind": "check", "bag": self.identify(self.bag(self.pick([0.3, 0.9]))), "global": self.chance(0.5)}
        if self.chance(0.5):
            request["dedup"] = self.pick(["a", "b"]) if self.chance(0.3) else "u%d" % self.random.randrange(10**9)
            names = self.random.sample(["quota0", "quota1", "QUOTA1", "nosuch"], self.random.randint(1, 2))
            request["quotas"] = {name: [self.pick([1, 3, 5, 10, -3]), self.chance(0.5)] for name in names}
        return request

    def report(self):
        bags = [self.identify(self.bag(self.pick([0.3, 0.9]))) for _ in range(self.random.randint(1, 3))]
        return {"kind": "report", "bags": bags, "global": self.chance(0.5), "independent": self.chance(0.7),
                "default_words": self.chance(0.3)}

    def case(self, requests):
        """A case with that many requests."""
        kinds = {
            "check": ([self.checks], [self.check]),
            "headers": ([lambda: self.checks(operations=True)], [self.check]),
            "quota": ([self.quotas], [self.check]),
            "stdio": ([self.logs], [self.report]),
            "prom": ([self.metrics], [self.report]),
            "mixed": ([self.checks, self.quotas, self.logs], [self.check, self.report]),
        }
        if self.server:
            kinds["remote"] = ([self.remote_checks], [self.check])
        kind = self.pick(sorted(kinds))
        parts, calls = kinds[kind]
        resources, actions, operations = [], [], False
        for part in parts:
            more, led_to, operating = part()
            resources, actions, operations = resources + more, actions + led_to, operations or operating
        resources += self.rules(actions, operations)
        return {"name": "%s %s" % (kind, self.seed), "resources": resources,
                "requests": [self.pick(calls)() for _ in range(requests)]}
