"""Holds two servers of the Mixer API against each other: README.md."""
import argparse
import concurrent.futures
import json
import sys
import threading

from compare import differences
from generate import Generator
from mixer import AdapterServer, Mixer, StartError, read_cases
from shrink import shrink


def options():
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--first", required=True, metavar="COMMAND", help="a command line that serves the Mixer API; placeholders: {listen}, {port}, {config_dir}, {default_namespace}, {port1}, {port2}, ..")
    parser.add_argument("--second", required=True, metavar="COMMAND", help="another one")
    parser.add_argument("--first-metrics", metavar="URL", help="the page of the prometheus adapter, with the same placeholders")
    parser.add_argument("--second-metrics", metavar="URL")
    parser.add_argument("--adapter-server", metavar="PROGRAM", help="a mixer-adapter; some cases have handlers that it serves outside of both servers")
    parser.add_argument("--seed", default="1", help="what the cases are made from (%(default)s)")
    parser.add_argument("--cases", type=int, default=100, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--requests", type=int, default=10, metavar="N", help="how many a case (%(default)s)")
    parser.add_argument("--replay", metavar="FILE", help="these cases in place of random ones: JSON lines, .gz or not")
    parser.add_argument("--only", metavar="NAME", help="one case")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at a time (%(default)s)")
    parser.add_argument("--shrink-runs", type=int, default=150, metavar="N", help="runs to make a difference smaller; 0 leaves it (%(default)s)")
    parser.add_argument("--settle", type=float, default=0.0, metavar="SECONDS", help="wait between ready and the first request (%(default)s)")
    parser.add_argument("--start-timeout", type=float, default=20.0, metavar="SECONDS", help="how long a server may take to be ready (%(default)s)")
    parser.add_argument("--out", metavar="FILE", help="write the cases that differ, as small as they became, as JSON lines")
    return parser.parse_args()


class Comparison:
    """Two servers, and what they disagree about."""

    def __init__(self, first, second, shrink_runs):
        self.first, self.second, self.shrink_runs = first, second, shrink_runs

    def of(self, case):
        """The differences of a case that show each time; none where a server disagrees with itself."""
        found = self._once(case)
        if not found:
            return []
        places = {place for place, _, _ in self._once(case)}
        return [difference for difference in found if difference[0] in places and self._steady(case)]

    def smallest(self, case):
        """The case in as few parts as still differ."""
        return shrink(case, lambda smaller: bool(self._try(smaller)), self.shrink_runs)

    def _try(self, case):
        try:
            return self._once(case)
        except StartError:
            # A server that refuses what is left of the configuration has no outcome.
            return []

    def _once(self, case):
        return differences(case, self.first.run(case), self.second.run(case))

    def _steady(self, case):
        return all(not differences(case, side.run(case), side.run(case)) for side in (self.first, self.second))


def describe(case, found):
    lines = ["%s differs" % case["name"]]
    lines += ["  " + json.dumps(resource, ensure_ascii=False) for resource in case["resources"]]
    lines += ["  request: " + json.dumps(request, ensure_ascii=False) for request in case["requests"]]
    for place, one, other in found:
        lines += ["  " + place, "       first: %s" % json.dumps(one, ensure_ascii=False),
                  "      second: %s" % json.dumps(other, ensure_ascii=False)]
    return "\n".join(lines)


def main():
    given = options()
    mixers = [Mixer(command, metrics, given.settle, given.start_timeout)
              for command, metrics in ((given.first, given.first_metrics), (given.second, given.second_metrics))]
    comparison = Comparison(*mixers, given.shrink_runs)
    server = AdapterServer(given.adapter_server) if given.adapter_server else None
    if given.replay:
        cases = read_cases(given.replay)
    else:
        cases = [Generator("%s/%d" % (given.seed, index), server).case(given.requests) for index in range(given.cases)]
    cases = [case for case in cases if given.only in (None, case["name"])]
    printing = threading.Lock()
    out = open(given.out, "w", encoding="utf-8") if given.out else None

    def compare(case):
        found = comparison.of(case)
        if not found:
            return False
        smallest = comparison.smallest(case)
        found = comparison.of(smallest) or found
        with printing:
            print(describe(smallest, found), flush=True)
            if out:
                out.write(json.dumps(dict(smallest, differences=found), ensure_ascii=False) + "\n")
                out.flush()
        return True

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        try:
            differing = sum(pool.map(compare, cases))
        except StartError as error:
            sys.exit("error: %s" % error)
        finally:
            if server:
                server.stop()
    print("%d cases, %d differ" % (len(cases), differing))
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
