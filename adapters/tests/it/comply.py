"""An adapter in Python, for the command `comply`: denies the entries of its configuration.

Arguments: the descriptor sets of its messages, and a fault or "none". Prints its port.
"""

import itertools
import sys
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

*SETS, FAULT = sys.argv[1:]
POOL = descriptor_pool.DescriptorPool()
MODEL = "istio.mixer.adapter.model.v1beta1."
SESSION = "google.protobuf.Any.type_url"
SESSIONS = {}
IDS = itertools.count()
CALLS = [0]


def load():
    files = {}
    for path in SETS:
        with open(path, "rb") as file:
            for proto in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
                files[proto.name] = proto

    def add(name):
        if proto := files.pop(name, None):
            for dependency in proto.dependency:
                add(dependency)
            POOL.Add(proto)

    for name in list(files):
        add(name)


def message(name):
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


def entries(config):
    """Reads {"entries": ["..."]}. Raises ValueError with the path of a faulty field."""
    fields = struct_pb2.Struct.FromString(config.value)
    read = list(fields["entries"]) if "entries" in fields else []
    for index, entry in enumerate(read):
        if not isinstance(entry, str) or not entry:
            raise ValueError(f"entries[{index}]: must be a text")
    return read


def denied(config, context):
    if config.type_url == SESSION:
        session = config.value.decode(errors="replace")
        if session not in SESSIONS:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such session")
        return SESSIONS[session]
    try:
        return entries(config)
    except ValueError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


def check(request, context):
    deny = request.instance.value.string_value in denied(request.adapter_config, context)
    CALLS[0] += 1
    if FAULT == "expects a value" and request.instance.value.WhichOneof("value") is None:
        raise KeyError("value")
    if FAULT == "denies by an error" and deny:
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "on the list")
    if FAULT == "alternates" and CALLS[0] % 2:
        deny = not deny
    result = message(MODEL + "CheckResult")(valid_use_count=1000)
    result.valid_duration.seconds = 5
    if deny:
        result.status.code = 7
        result.status.message = "on the list"
    return result


def validate(request, _):
    response = message(MODEL + "ValidateResponse")()
    response.status.code = 0
    try:
        entries(request.adapter_config)
    except ValueError as error:
        response.status.code, response.status.message = 3, str(error)
    return response


def create(request, _):
    response = message(MODEL + "CreateSessionResponse")()
    try:
        read = entries(request.adapter_config)
        response.session_id = f"session-{next(IDS)}"
        SESSIONS[response.session_id] = read
    except ValueError as error:
        response.status.code, response.status.message = 3, str(error)
    return response


def close(request, _):
    response = message(MODEL + "CloseSessionResponse")()
    if SESSIONS.pop(request.session_id, None) is None:
        response.status.code, response.status.message = 5, "no such session"
    return response


def method(handle, request):
    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=message(request).FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


def main():
    load()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    services = {
        "listentry.HandleListEntryService": {
            "HandleListEntry": method(check, "listentry.HandleListEntryRequest"),
        },
        MODEL + "InfrastructureBackend": {
            "Validate": method(validate, MODEL + "ValidateRequest"),
            "CreateSession": method(create, MODEL + "CreateSessionRequest"),
            "CloseSession": method(close, MODEL + "CloseSessionRequest"),
        },
    }
    for name, methods in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


main()
