"""Servers of the Mixer API, each started for one case."""
import gzip
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from generate import DEFAULT_NAMESPACE, MANIFEST, NAMESPACE, ROOT

with open(os.path.join(ROOT, "crates/engine/src/global_dictionary.txt"), encoding="utf-8") as dictionary:
    GLOBAL = {word: index for index, word in enumerate(dictionary.read().splitlines())}
WORDS = list(GLOBAL)
CONDITIONS = {0: "CONDITION_UNSPECIFIED", 1: "ABSENCE", 2: "EXACT", 3: "REGEX"}


class StartError(Exception):
    """A server that cannot be started or does not become ready."""


def _strings_to_bytes(message):
    """Makes strings bytes, because both sides can send strings that are not UTF-8."""
    for field in message.field:
        if field.type == field.TYPE_STRING and not field.HasField("default_value"):
            field.type = field.TYPE_BYTES
    for nested in message.nested_type:
        if not nested.options.map_entry:
            _strings_to_bytes(nested)


def _text(given):
    return given.decode("utf-8", "replace")


def _messages():
    protos = os.path.join(ROOT, "proto")
    well_known = os.path.join(os.path.dirname(protoc.__file__), "_proto")
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "all.binpb")
        arguments = ["protoc"] + ["-I" + root for root in [protos, well_known]]
        if protoc.main(arguments + ["--include_imports", "--descriptor_set_out=" + target, "mixer/v1/mixer.proto"]) != 0:
            raise SystemExit("the protos in %s cannot be compiled" % protos)
        with open(target, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        if file.package in ("istio.mixer.v1", "google.rpc"):
            for message in file.message_type:
                _strings_to_bytes(message)
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName("istio.mixer.v1." + name))


_message = _messages()
CheckRequest, ReportRequest = _message("CheckRequest"), _message("ReportRequest")
CheckResponse, ReportResponse = _message("CheckResponse"), _message("ReportResponse")


class _Words:
    """The words of a message."""

    def __init__(self, known):
        self.known, self.own = known, []

    def index(self, word):
        if self.known and word in GLOBAL:
            return GLOBAL[word]
        word = word.encode() if isinstance(word, str) else word
        if word not in self.own:
            self.own.append(word)
        return -1 - self.own.index(word)

    def fill(self, attributes, bag):
        for name, (kind, value) in sorted(bag.items()):
            name = self.index(name)
            if kind == "string":
                attributes.strings[name] = self.index(value)
            elif kind == "string_bytes":
                attributes.strings[name] = self.index(bytes.fromhex(value))
            elif kind == "double":
                attributes.doubles[name] = float(value)
            elif kind == "bytes":
                attributes.bytes[name] = bytes.fromhex(value)
            elif kind in ("timestamp", "duration"):
                into = (attributes.timestamps if kind == "timestamp" else attributes.durations)[name]
                into.seconds, into.nanos = value
            elif kind == "string_map":
                entries = attributes.string_maps[name].entries
                for key, entry in sorted(value.items()):
                    entries[self.index(key)] = self.index(entry)
            else:
                getattr(attributes, kind + "s")[name] = value


def encode(request):
    """The method and the message of a request."""
    known = request.get("global", False)
    count = len(WORDS) if known else 0
    if request["kind"] == "check":
        message = CheckRequest(global_word_count=count, deduplication_id=request.get("dedup", "").encode())
        words = _Words(known)
        words.fill(message.attributes, request["bag"])
        message.attributes.words.extend(words.own)
        for name, (amount, best_effort) in request.get("quotas", {}).items():
            message.quotas[name].amount, message.quotas[name].best_effort = amount, best_effort
        return "Check", message
    message = ReportRequest(global_word_count=count)
    message.repeated_attributes_semantics = 1 if request.get("independent", True) else 0
    shared = _Words(known)
    for bag in request["bags"]:
        words = shared if request.get("default_words") else _Words(known)
        attributes = message.attributes.add()
        words.fill(attributes, bag)
        if words is not shared:
            attributes.words.extend(words.own)
    message.default_words.extend(shared.own)
    return "Report", message


def _references(referenced):
    def word(index):
        return WORDS[index] if index >= 0 else _text(referenced.words[-1 - index])

    def text(match):
        key = "[%s]" % word(match.map_key) if match.map_key else ""
        return "%s%s=%s" % (word(match.name), key, CONDITIONS[match.condition])
    return sorted(text(match) for match in referenced.attribute_matches)


def _nanos(duration):
    return duration.seconds * 10**9 + duration.nanos


def decode(response):
    """The answer to a check."""
    precondition = response.precondition
    operations = lambda given: [[_text(each.name), _text(each.value), each.operation] for each in given]
    route = precondition.route_directive
    return {
        "code": "OK",
        "status": precondition.status.code,
        "message": _text(precondition.status.message),
        "duration": _nanos(precondition.valid_duration),
        "uses": precondition.valid_use_count,
        "refs": _references(precondition.referenced_attributes),
        "route": {
            "request": operations(route.request_header_operations),
            "response": operations(route.response_header_operations),
            "direct": [route.direct_response_code, _text(route.direct_response_body)],
        },
        "quotas": {
            name: {"granted": quota.granted_amount, "duration": _nanos(quota.valid_duration),
                   "refs": _references(quota.referenced_attributes)}
            for name, quota in response.quotas.items()
        },
    }


class Ports:
    """Free ports of 127.0.0.1, each given out once."""
    _lock, _given = threading.Lock(), set()

    @classmethod
    def take(cls):
        with cls._lock:
            while True:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    port = free.getsockname()[1]
                if port not in cls._given:
                    cls._given.add(port)
                    return port


class Mixer:
    """A command line that serves the Mixer API."""

    def __init__(self, command, metrics, settle, start_timeout):
        self.command, self.metrics, self.settle, self.start_timeout = command, metrics, settle, start_timeout

    def run(self, case):
        """The outcome of a case, in a process and a folder of its own."""
        with tempfile.TemporaryDirectory(prefix="differential-") as folder:
            return self._run(case, folder)

    def _run(self, case, folder):
        config = os.path.join(folder, "config")
        os.mkdir(config)
        os.mkdir(os.path.join(folder, "out"))
        with open(os.path.join(config, "case.yaml"), "w", encoding="utf-8") as file:
            for resource in [MANIFEST] + case["resources"]:
                file.write("---\n%s\n" % json.dumps(resource))
        values = {"port": str(Ports.take()), "config_dir": config, "default_namespace": DEFAULT_NAMESPACE}
        values["listen"] = "127.0.0.1:" + values["port"]
        fill = lambda text: re.sub(r"\{(\w+)\}", lambda found: self._value(found.group(1), values), text)
        arguments = [fill(argument) for argument in shlex.split(self.command)]
        log = os.path.join(folder, "log")
        with open(log, "wb") as output:
            try:
                process = subprocess.Popen(arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                           start_new_session=True)
            except OSError as error:
                raise StartError("%s: %s" % (arguments[0], error)) from error
        try:
            with grpc.insecure_channel(values["listen"], options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
                self._await(process, channel, values["listen"], log)
                answers = [self._call(channel, request) for request in case["requests"]]
            prom = self._samples(fill(self.metrics)) if self.metrics else {}
        finally:
            self._stop(process)
        files = {}
        for name in os.listdir(os.path.join(folder, "out")):
            with open(os.path.join(folder, "out", name), encoding="utf-8") as file:
                files[name.replace(NAMESPACE + "-", "@NS@-", 1)] = file.read().splitlines()
        return {"answers": answers, "files": files, "prom": prom}

    @staticmethod
    def _value(name, values):
        if name not in values and re.fullmatch(r"port\d+", name):
            values[name] = str(Ports.take())
        if name not in values:
            raise SystemExit("there is no placeholder {%s}" % name)
        return values[name]

    def _await(self, process, channel, address, log):
        """Waits until an empty report is answered: there is a configuration then."""
        end = time.monotonic() + self.start_timeout
        host, port = address.rsplit(":", 1)
        while True:
            try:
                socket.create_connection((host, int(port)), 1).close()
                self._unary(channel, "Report", ReportRequest(), ReportResponse)
                break
            except OSError:
                pass
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    break
            if process.poll() is not None or time.monotonic() > end:
                with open(log, "rb") as output:
                    raise StartError("the server is not ready: %s" % output.read()[-2000:].decode("utf-8", "replace"))
            time.sleep(0.01)
        time.sleep(self.settle)

    @staticmethod
    def _unary(channel, method, message, answer):
        call = channel.unary_unary("/istio.mixer.v1.Mixer/" + method, request_serializer=type(message).SerializeToString,
                                   response_deserializer=answer.FromString)
        return call(message, timeout=20)

    def _call(self, channel, request):
        method, message = encode(request)
        try:
            answer = self._unary(channel, method, message, CheckResponse if method == "Check" else ReportResponse)
        except grpc.RpcError as error:
            return {"code": error.code().name}
        return decode(answer) if method == "Check" else {"code": "OK"}

    @staticmethod
    def _samples(url):
        """The samples of a page of Prometheus by their series; none where nothing is served."""
        try:
            with urllib.request.urlopen(url, timeout=10) as page:
                lines = page.read().decode("utf-8").splitlines()
        except (urllib.error.URLError, OSError):
            return {}
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {series: value for series, _, value in samples
                if not series.startswith(("go_", "process_", "promhttp_", "mixer_adapter_"))}

    @staticmethod
    def _stop(process):
        """Ends the server, and waits until it has written everything."""
        for number, seconds in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
            if process.poll() is None:
                os.killpg(process.pid, number)
                try:
                    process.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass


class AdapterServer:
    """A running `mixer-adapter serve` that real Mixers and others call, with its resources."""
    ADAPTERS = ["denier", "listchecker"]

    def __init__(self, program):
        listed = subprocess.run([program, "manifest", "-o", "json"] + self.ADAPTERS, check=True, stdout=subprocess.PIPE)
        self.resources = [json.loads(line) for line in listed.stdout.decode("utf-8").splitlines()]
        self.names = {each["metadata"]["name"]: "%(name)s.%(namespace)s" % each["metadata"] for each in self.resources}
        self.address = "127.0.0.1:%d" % Ports.take()
        admin = "127.0.0.1:%d" % Ports.take()
        self.process = subprocess.Popen([program, "serve", "--listen", self.address, "--admin", admin, "--log", "error"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(timeout=20)

    def stop(self):
        """Ends the process."""
        Mixer._stop(self.process)


def read_cases(path):
    """Cases from a file of JSON lines, compressed or not."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
