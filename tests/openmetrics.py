#!/usr/bin/env python3
"""Reads what jc_stats_openmetrics writes with the parsers of Prometheus' client for Python:
openmetrics.py TEST_OPENMETRICS

TEST_OPENMETRICS prints the text with --print. Status 77 without the client.
"""
import subprocess
import sys

try:
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser
except ImportError:
    print("no prometheus_client here; scripts/setup --tests installs it")
    sys.exit(77)

# As openmetrics.c of the tests makes them, one on each device from -1 on.
NAMES = ["a", 'b"c\\d\ne} 5', "\ufffd", "\u00ef", "", "# EOF"]
DEVICES = ["none", "0", "1", "2", "3", "4"]


def samples_of(families):
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in families for sample in family.samples}


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


def check_openmetrics(text):
    """The strict one: it refuses what the standard does."""
    families = list(openmetrics_parser.text_string_to_metric_families(text))
    by_name = {family.name: family for family in families}
    expect("families", len(by_name), len(families))
    expect("those without a sample", [name for name in by_name if not by_name[name].samples], [])

    compile_time = by_name["jitcache_compile_seconds"]
    expect("type", compile_time.type, "counter")
    expect("unit", compile_time.unit, "seconds")
    labels = {(sample.labels["kernel"], sample.labels["device"])
              for sample in compile_time.samples}
    expect("kernels", labels, set(zip(NAMES, DEVICES)))
    # What came after the seal is not counted twice.
    seconds = sum(sample.value for sample in compile_time.samples
                  if sample.labels["kernel"] == "a")
    expect("seconds", round(seconds, 9), 12.3456789)

    histogram = by_name["jitcache_launch_seconds"]
    expect("type", histogram.type, "histogram")
    bounds = [float(sample.labels["le"]) for sample in histogram.samples]
    expect("bounds", bounds, sorted(bounds))
    expect("the last bucket", (bounds[-1], histogram.samples[-1].value), (float("inf"), 10))
    return samples_of(families)


def main(program):
    text = subprocess.run([program, "--print"], check=True, capture_output=True).stdout.decode()
    samples = check_openmetrics(text)
    # The older text format, which the textfile collector reads, has the same samples.
    older = samples_of(parser.text_string_to_metric_families(text))
    expect("samples of the older format", older, samples)
    print(f"{len(samples)} samples")


if __name__ == "__main__":
    main(sys.argv[1])
