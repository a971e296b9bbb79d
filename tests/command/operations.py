"""What operators copy is right: metrics, alerts, the dashboard, commands and links."""
import json
import re
import shlex
import unittest

import harness

PAGE = harness.ROOT / "docs" / "operations.md"
DASHBOARD = harness.ROOT / "docs" / "grafana" / "jitcache.json"

# What Prometheus, its node_exporter and Grafana add to what is exposed.
LABELS_OF_OTHERS = {"instance", "le", "file"}
METRICS_OF_OTHERS = {"node_textfile_mtime_seconds"}
FUNCTIONS = {"sum", "max", "count", "rate", "increase", "time", "vector", "histogram_quantile",
             "by", "on", "and", "or"}


def anchor_of(heading):
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class Operations(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.page = PAGE.read_text()
        cls.dashboard = json.loads(DASHBOARD.read_text())

    def exposed(self):
        """The names of all samples, and of all their labels."""
        self.command = harness.SCENIC
        text = self.run_command("stats", "--openmetrics", env=self.scenic("serving")).out
        self.assertTrue(text.endswith("# EOF\n"))
        samples = [line for line in text.splitlines() if not line.startswith("#")]
        # A family of which there is nothing now is one too.
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")
                 and line.split()[3] == "gauge"}
        names |= {re.match(r"\w+", line)[0] for line in samples}
        labels = {label for line in samples
                  for label in re.findall(r'[{,](\w+)="', line)}
        self.assertGreater(len(names), 40)
        return names, labels

    def rules(self):
        block = re.search(r"```yaml\n(groups:.*?)```", self.page, re.DOTALL)[1]
        rules = re.findall(r"- alert: (\w+)\n +expr: (?:>\n)?(.*?)\n(?= +(?:- |for:)|$)",
                           block + "\n", re.DOTALL)
        self.assertEqual(len(rules), block.count("- alert:"))
        return {name: " ".join(expression.split()) for name, expression in rules}

    def panels(self):
        return [panel for panel in self.dashboard["panels"] if panel["type"] != "row"]

    def queries(self):
        """Every expression, with where it stands."""
        told = dict(self.rules())
        for panel in self.panels():
            for target in panel["targets"]:
                told[f"{panel['title']} {target['refId']}"] = target["expr"]
        return told

    # --- metrics

    def test_queries_name_metrics_and_labels_that_are_exposed(self):
        names, labels = self.exposed()
        for place, query in self.queries().items():
            with self.subTest(place=place):
                bare = re.sub(r'"[^"]*"', '""', query)
                bare = re.sub(r"\[[^\]]*\]", "", bare)
                used = set(re.findall(r"(\w+)\s*(?:=~?|!=|!~)", bare))
                for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", bare):
                    used |= {label.strip() for label in group.split(",")}
                self.assertLessEqual(used, labels | LABELS_OF_OTHERS)
                words = set(re.findall(r"[a-z_][a-z_0-9]*", bare))
                metrics = {word for word in words if "_" in word} - used - FUNCTIONS
                self.assertTrue(metrics)
                self.assertLessEqual(metrics, names | METRICS_OF_OTHERS)
                self.assertLessEqual(words - metrics - used, FUNCTIONS)

    def test_the_page_lists_every_metric_and_no_other(self):
        names, _ = self.exposed()
        table = self.page.split("\n## Metrics\n")[1].split("\n## ")[0]
        listed = set(re.findall(r"`(jitcache_\w+)`", table))
        self.assertEqual(listed, names)
        everywhere = set(re.findall(r"\bjitcache_\w+", self.page))
        self.assertLessEqual(everywhere, names)

    def test_queries_are_balanced(self):
        for place, query in self.queries().items():
            for left, right in ["()", "{}", "[]"]:
                self.assertEqual(query.count(left), query.count(right), place)

    def test_every_alert_has_its_row(self):
        table = self.page.split("\n| alert `Jitcache...` |")[1].split("\n\n")[0]
        rows = re.findall(r"(?m)^\| (`.*?`) \|", table)
        named = {"Jitcache" + name for row in rows for name in re.findall(r"`(\w+)`", row)}
        self.assertEqual(named, set(self.rules()))

    # --- the dashboard

    def test_the_dashboard_can_be_imported(self):
        board = self.dashboard
        self.assertEqual((board["title"], board["uid"]), ("jitcache", "jitcache"))
        self.assertIsInstance(board["schemaVersion"], int)
        self.assertNotIn("id", board)
        self.assertNotIn("__inputs", board)
        variables = {each["name"]: each for each in board["templating"]["list"]}
        self.assertEqual(variables["datasource"]["type"], "datasource")
        source = {"type": "prometheus", "uid": "${datasource}"}
        for panel in self.panels():
            self.assertEqual(panel["datasource"], source, panel["title"])
            for target in panel["targets"]:
                self.assertEqual(target["datasource"], source)
        used = set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text()))
        self.assertLessEqual(used - {"__all", "__range", "__rate_interval"}, set(variables))

    def test_its_variables_ask_for_what_is_exposed(self):
        names, labels = self.exposed()
        for variable in self.dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)",
                                         variable["definition"]).groups()
            self.assertIn(metric, names)
            self.assertIn(label, labels | LABELS_OF_OTHERS)

    def test_its_panels_lie_beside_one_another(self):
        taken, ids = set(), set()
        for panel in self.dashboard["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
            ids.add(panel["id"])
        self.assertEqual(len(ids), len(self.dashboard["panels"]))

    # --- the rest of the page

    def test_commands_take_the_options_that_the_page_gives_them(self):
        code = "\n".join(re.findall(r"`(jitcache [^`]+)`", self.page)
                         + re.findall(r"(?m)^(?:RUN |\$ |ExecStart=\S*/)(jitcache .*)", self.page)
                         + re.findall(r"'while [^']*; do (jitcache [^;]*); done'", self.page))
        lines = [shlex.split(line) for line in code.splitlines()]
        self.assertGreater(len(lines), 20)
        for words in lines:
            options = {word.split("=")[0] for word in words if word.startswith("--")}
            text = self.run_command("help", words[1]).out
            for option in options:
                self.assertRegex(text, rf"(?m)^ +(-\w, )?{option}\b", words)

    def test_variables_are_those_of_the_table(self):
        table = (harness.ROOT / "docs" / "environment.md").read_text()
        for name in set(re.findall(r"\bJITCACHE_[A-Z_]+", self.page)):
            self.assertIn(f"| `{name}` |", table, name)

    def test_links_lead_somewhere(self):
        for page in sorted((harness.ROOT / "docs").glob("*.md")) + [harness.ROOT / "README.md"]:
            text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                path, _, anchor = target.partition("#")
                if "://" in path:
                    continue
                there = page.parent / path if path else page
                self.assertTrue(there.exists(), f"{page.name}: {target}")
                if anchor:
                    headings = re.findall(r"(?m)^#+ (.*)$", there.read_text())
                    self.assertIn(anchor, map(anchor_of, headings), f"{page.name}: {target}")


if __name__ == "__main__":
    harness.main()
