"""Tests of what needs no server."""
import json
import unittest

from compare import differences
from generate import Generator
from shrink import candidates, shrink, simpler_expressions


def outcome(**answer):
    answer = dict({"code": "OK", "message": "", "duration": 0, "route": {"request": [], "response": [], "direct": [0, ""]}, "quotas": {}}, **answer)
    return {"answers": [answer], "files": {}, "prom": {}}


class Generated(unittest.TestCase):
    def test_equal_seeds_make_equal_cases_and_others_make_others(self):
        one, same, other = (Generator(seed).case(5) for seed in ("1/0", "1/0", "1/1"))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_cases_have_what_once_differed_from_mixer(self):
        text = "".join(json.dumps(Generator("odd/%d" % index).case(5), ensure_ascii=False) for index in range(300))
        for part in ["evil\u3002com", "Bob <u@example.com>", '"value": "true"', '"label_names": ["absent"]', '"string_bytes"']:
            self.assertIn(part, text)

    def test_cases_are_json_with_rules_of_resources_that_there_are(self):
        for index in range(200):
            case = Generator("test/%d" % index).case(3)
            json.dumps(case, allow_nan=False)
            names = {resource["metadata"]["name"] for resource in case["resources"]}
            for resource in case["resources"]:
                for action in resource["spec"].get("actions", []):
                    referred = [action["handler"]] + action["instances"]
                    self.assertTrue({name.split(".")[0] for name in referred} <= names, case["name"])


class Compared(unittest.TestCase):
    CASE = {"resources": [{"kind": "instance", "metadata": {"name": "m", "namespace": "ns"}, "spec": {"compiledTemplate": "metric"}}]}

    def places(self, first, second):
        return [place for place, _, _ in differences(self.CASE, first, second)]

    def test_what_is_free_is_no_difference(self):
        self.assertEqual(self.places(outcome(message="a:x, b:y", duration=10**9), outcome(message="b:y, a:x", duration=10**9 + 3 * 10**8)), [])
        self.assertEqual(self.places(outcome(message="a:x, b:y", status=7), outcome(message="b:y, a:x", status=16)), [])
        operations = [["a", "1", 0], ["b", "2", 0]]
        route = {"request": operations, "response": [], "direct": [0, ""]}
        self.assertEqual(self.places(outcome(route=route), outcome(route=dict(route, request=operations[::-1]))), [])
        first, second = outcome(), outcome()
        first["files"]["f"] = ['{"time":"1","instance":"m.instance.ns"}', "1\tinfo\tm.instance.ns", "b"]
        second["files"]["f"] = ["b", "2\tinfo\tm.instance.ns", '{"time":"2","instance":"m.instance.ns"}']
        first["prom"]["s"], second["prom"]["s"] = "1e+06", "1000000"
        self.assertEqual(self.places(first, second), [])

    def test_the_rest_is_one(self):
        self.assertEqual(self.places(outcome(), {"answers": [{"code": "UNKNOWN"}], "files": {}, "prom": {}}), ["answers[0].code"])
        self.assertEqual(self.places(outcome(message="a:x", status=7), outcome(message="a:x", status=16)), ["answers[0].status"])
        self.assertEqual(self.places(outcome(message="a:x, b:y", status=0), outcome(message="b:y, a:x", status=16)), ["answers[0].status"])
        self.assertEqual(self.places(outcome(uses=1), outcome(uses=2)), ["answers[0].uses"])
        quotas = [{"q": {"granted": amount, "duration": 0, "refs": []}} for amount in (1, 2)]
        self.assertEqual(self.places(outcome(quotas=quotas[0]), outcome(quotas=quotas[1])), ["answers[0].quotas[q].granted"])
        first, second = outcome(), outcome()
        first["files"]["f"], second["files"]["g"] = ["a"], []
        first["prom"]['s{a="1"}'], second["prom"]["t"] = "1", "NaN"
        self.assertEqual(self.places(first, second), ["files[f]", "files[g]", 'prom[s{a="1"}]', "prom[t]"])


class Shrunk(unittest.TestCase):
    def test_operands_and_arguments_are_simpler_expressions(self):
        self.assertEqual(simpler_expressions('a | "b || c" == (d && e)'), ["d && e", "a", '"b || c"', "(d && e)"])
        self.assertEqual(simpler_expressions("(a && b)"), ["a && b"])
        self.assertEqual(simpler_expressions('match(f(a, b), "x, y")'), ["f(a, b)", '"x, y"'])
        self.assertEqual(simpler_expressions("a"), [])

    def test_a_case_shrinks_to_what_shows_the_difference(self):
        case = Generator("shrink/3").case(6)
        case["resources"].append({"kind": "instance", "metadata": {"name": "i"}, "spec": {"params": {"value": 's.a | "needle" + s.b'}}})
        smallest = shrink(case, lambda smaller: "needle" in json.dumps(smaller), 1000)
        self.assertEqual([resource["spec"] for resource in smallest["resources"]], [{"params": {"value": '"needle"'}}])
        self.assertEqual(len(smallest["requests"]), 1)
        self.assertEqual([bag for request in smallest["requests"] for bag in request.get("bags", [request.get("bag")])], [{}])

    def test_the_number_of_runs_is_kept_to(self):
        runs = []
        case = Generator("shrink/1").case(3)
        shrink(case, lambda smaller: bool(runs.append(smaller)), 7)
        self.assertEqual(len(runs), 7)
        self.assertTrue(all(smaller != case for smaller in candidates(case) if smaller in runs))


if __name__ == "__main__":
    unittest.main()
