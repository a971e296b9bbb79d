#!/usr/bin/env python3
"""Statistics that are made up, as scene.c reads them: scenes.py NAME prints a scene, so that what
the command shows can be looked at without an engine.

  serving   an hour of an engine with 30 kernels on two devices, three of them with storms
  calm      the same without storms, and nothing after the seal
  odd       names and texts that could be taken for markup or drive a terminal
  dense     far more events than can be drawn one by one
  none      nothing was counted
  many      300 processes
  ranks     a group of eight ranks, of which others wait for one; and one of 256 that failed
  wrong     times and counts that a damaged file may have
  refused   an error
"""
import json
import random
import sys

MS, US = 1_000_000, 1000
START = 1_796_029_200_000  # 2026-11-30 09:00 UTC
END = START + 3_600_000
SEALED = START + 420_000
MAX_EVENTS = 2048
MOST = -1  # the largest count

NAMES = """silu_mul_fp8_quant fused_inv_rope_fp8_quant rms_norm rms_norm_residual rope_neox
gather_rows scatter_rows topk_softmax moe_align moe_sum paged_attention kv_append kv_append_fp8
sample_top_p argmax embed logit_softcap bias_gelu scale_rows transpose_tiles all_gather_pack
all_gather_unpack mask_pad cumsum swiglu quant_int8 dequant_int8 layer_norm lora_shrink
lora_expand""".split()

TOKENS = {
    "name": "num_tokens", "states": 212,
    "examples": [f"value: {value}" for value in (1, 17, 256, 1031, 2048, 4097)],
    "file": "kernels/silu_mul_fp8_quant.cu", "line": 7,
    "replacement": "  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 8192]}",
    "advice": "If it is meant to vary, write that; otherwise plan for it with jc_kernel_warmup,"
              " or allow more with max_variants."}
STRIDE = {
    "name": "scale_stride", "states": 31, "stopped": True,
    "examples": ["div: 16", "div: 8", "div: 4", "one"],
    "file": "kernels/fused_inv_rope_fp8_quant.cu", "line": 12,
    "replacement": '  - {name: scale_stride, type: i32, derive: "align(num_tokens, 4)",'
                   " do_not_specialize: true}",
    "advice": "It follows num_tokens, which is not specialized."}
ROWS = {
    "name": "rows", "states": 2, "examples": ["align: 16", "align: 4"],
    "file": "kernels/gather_rows.cu", "line": 5,
    "replacement": "  - {name: rows, type: f16*, align: either}",
    "advice": "Calls slice that tensor: with `either` both are planned."}

# Most launches take 2 us, some ten times as long.
PER_MILLE = [0, 0, 0, 0, 0, 1, 14, 120, 380, 310, 110, 40, 14, 6, 3, 2]

numbers = random.Random()
draw = numbers.randrange


def make_kernel(name, device):
    variants, launches = 1 + draw(7), 100_000 + draw(3_000_000)
    compiles = variants // 3
    samples = [launches // 1000 * share // 1000 for share in PER_MILLE]
    return {
        "name": name, "device": device, "kernels": 1, "variants": variants, "stand_ins": 1,
        "samples": samples + [draw(3) for _ in range(8)], "sealed": {},
        "total": {"launches": launches, "generic_launches": launches // (50 + draw(9000)),
                  "misses": variants + 4, "missed_launches": variants + 4,
                  "disk_hits": variants - compiles,
                  "saved_ns": variants * 400 * MS, "compiles": compiles,
                  "compile_ns": compiles * (300 + draw(400)) * MS,
                  "queue_ns": compiles * 20 * MS, "loads": variants,
                  "load_ns": variants * 900 * US, "held_ns": variants * 400 * US,
                  "loaded_bytes": variants * 23456, "queued": compiles, "upgraded": compiles}}


def add(counts, **more):
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def add_storm(kernel, argument, last_asked_ms):
    asked = argument["states"]
    kernel.update(varying=[argument], asked=asked, first_asked_ms=START + 600_000,
                  last_asked_ms=last_asked_ms,
                  sealed={"misses": asked // 2, "loads": asked // 4, "compiles": asked // 4,
                          "compile_ns": asked // 4 * 410 * MS,
                          "background_ns": asked // 4 * 350 * MS, "held_ns": asked // 4 * 400 * US})
    add(kernel["total"], compiles=asked, compile_ns=asked * 410 * MS,
        background_ns=asked * 350 * MS, loads=asked, held_ns=asked * 400 * US, misses=asked,
        missed_launches=asked)


class Events:
    def __init__(self):
        self.list = []

    def add(self, time_ms, kind, kernel="", **more):
        device = -1 if kind == "compile" else len(self.list) % 2
        self.list.append({"time_ms": time_ms, "kind": kind, "device": device, "kernel": kernel,
                          "sealed": time_ms > SEALED, "pid": 4100 + (device == 1), **more})

    def add_variant(self, time_ms, kernel):
        self.add(time_ms, "compile", kernel, elapsed_ns=(250 + draw(600)) * MS,
                 waited_ns=0 if draw(3) else draw(900) * MS,
                 specialization="parameter.BLOCK=128\nfacet.num_tokens=div: 16\n")
        self.add(time_ms + 20 + draw(400), "load", kernel, elapsed_ns=(1 + draw(9)) * MS,
                 waited_ns=draw(2) * MS)

    def add_warmup(self):
        for index in range(60):
            self.add_variant(START + 30_000 + index * 1100 + draw(5000), NAMES[index % len(NAMES)])
        for index in range(2):
            self.add(SEALED + index * 300, "seal", text="log")
            self.add(SEALED - 1000 + index * 300, "safe_point", elapsed_ns=48 * MS, count=60)

    def add_trouble(self):
        for index in range(70):
            time_ms = START + 600_000 + draw(2_900_000)
            self.add_variant(time_ms, NAMES[0 if draw(10) else 1])
            if draw(2):
                self.add(time_ms - 900, "sealed_miss", NAMES[0],
                         specialization="parameter.BLOCK=128\nfacet.num_tokens=value: 4097\n")
            if index % 6 == 0:
                self.add(time_ms + 5000, "safe_point", elapsed_ns=(3 + draw(20)) * MS,
                         count=1 + draw(3))
        self.add(START + 1_810_000, "storm", NAMES[1], text="scale_stride")
        self.add(START + 2_400_000, "failure", "lora_shrink", elapsed_ns=90 * MS,
                 text='lora_shrink.cu:31: error: identifier "rank" is undefined')


def make_processes(count):
    return [{"pid": 4100 + index, "command": "serve", "host": "gpu-17",
             "start_ms": START + index * 900, "seen_ms": END, "running": True, "seal": "log",
             "counts": {"safe_points": 7, "safe_point_ns": 60 * MS, "cache_hits": 71,
                        "cache_misses": 20}} for index in range(count)]


def make_scene(kernels, processes, events, **more):
    total, sealed = {}, {}
    for kernel in kernels:
        add(total, **kernel["total"])
        add(sealed, **kernel["sealed"])
    return {"now_ms": END, "kernels": kernels, "processes": processes, "total": total,
            "sealed": sealed, "events": sorted(events.list, key=lambda each: each["time_ms"]),
            **more}


def make_service(stormy=True, num_processes=2, num_variants=0):
    kernels, events = [make_kernel(name, device) for name in NAMES for device in (0, 1)], Events()
    events.add_warmup()
    if stormy:
        events.add_trouble()
        add_storm(kernels[0], TOKENS, END - 4000)
        add_storm(kernels[1], TOKENS, END - 9000)
        add_storm(kernels[3], STRIDE, END - 1_500_000)
        add_storm(kernels[10], ROWS, END - 1_500_000)
        for device in (0, 1):
            add(kernels[device]["total"], stalls=19, stall_ns=8200 * MS)
        failed = kernels[2 * NAMES.index("lora_shrink")]
        add(failed["total"], failures=1)
        add(failed["sealed"], failures=1)
    for _ in range(num_variants):
        events.add_variant(START + 60_000 + draw(3_500_000), NAMES[draw(len(NAMES))])
    return make_scene(sorted(kernels, key=lambda each: (each["name"], each["device"])),
                      make_processes(num_processes), events, ended=3)


def serving():
    return make_service()


def calm():
    return make_service(stormy=False)


def many():
    return make_service(num_processes=300)


def make_barrier(group, rank, ranks, time_ms, result="open", **more):
    return {"time_ms": time_ms, "kind": "barrier", "device": -1, "pid": 4100 + rank,
            "text": f"{group} {result}", "rank": rank, "ranks": ranks, **more}


def ranks():
    scene = make_service(stormy=False, num_processes=8)
    for rank, process in enumerate(scene["processes"]):
        process.update(group="tp", rank=rank, ranks=8)
    barriers = [make_barrier("pp", rank, 256, SEALED - 90_000 + rank, "a peer failed", count=rank,
                             compile_ns=rank * 2 * MS, elapsed_ns=30_000 * MS,
                             waited_ns=(100 + draw(29_000)) * MS) for rank in range(256)]
    for rank in range(8):
        waited = 0 if rank == 3 else 300 + draw(101)
        barriers.append(make_barrier("tp", rank, 8, SEALED - 1200, count=31 if rank == 3 else 10,
                                     compile_ns=(3900 if rank == 3 else 3500) * MS,
                                     elapsed_ns=(4200 - 5 * rank) * MS, waited_ns=waited * MS))
    events = sorted(scene["events"] + barriers, key=lambda each: each["time_ms"])
    return {**scene, "events": events,
            "process_total": {"barriers": 264, "barrier_wait_ns": 9 * MS}}


def dense():
    scene = make_service(num_variants=MAX_EVENTS // 2)
    scene["events"] = scene["events"][-MAX_EVENTS:]
    return {**scene, "process_total": {"events_dropped": 12345}}


def odd():
    names = ["<script>alert(1)</script>", "two \"quotes\" & 'more'", "noyau_\u00e9t\u00e9",
             "bad\uf7ff\uf7fe\x7f", "right\u202eto left", "line\nbreak\x1b[31m", "</style></svg>",
             "", " a very long name" + 10 * " that goes on"]
    argument = {"name": "<i>n</i>", "states": 1024, "more": True, "examples": ["value: <b>1</b>"],
                "file": 'a "b".cu', "line": 3,
                "replacement": "  - {name: <i>n</i>}\n    second line",
                "advice": "</pre><img src=http://127.0.0.1:9/x>"}
    processes, events = make_processes(1), Events()
    processes[0].update(command="<img src=x>", host='"><svg onload=alert(1)>')
    for index, name in enumerate(names):
        time_ms = START + index * 5000
        events.add_variant(time_ms, name)
        events.add(time_ms, "failure", name, text=name)
        events.add(time_ms, "seal", text=name)
        events.add(time_ms, "barrier", text=name + " " + name, rank=index, ranks=9)
    processes[0].update(group="<b>tp</b>", rank=1, ranks=2)
    kernels = [{**make_kernel(name, 0), "varying": [argument]} for name in names]
    return make_scene(kernels, processes, events, trouble="a <file> of\nanother & version")


def wrong():
    scene = calm()
    all_counts = dict.fromkeys([*scene["total"], "stalls", "stall_ns", "failures"], MOST)
    scene["events"] += [
        {"time_ms": MOST, "kind": "compile", "kernel": "later", "elapsed_ns": MOST},
        {"time_ms": START, "kind": 99, "kernel": "unknown", "text": "of a later version"}]
    scene["events"].insert(0, {"time_ms": 0, "kind": "load", "kernel": "earlier",
                               "waited_ns": MOST})
    for rank, count in [(0, 2), (1, 2), (-1, 2), (7, 2), (MOST, MOST), (0, -5), (0, 0)]:
        scene["events"].append(make_barrier("tp", rank, count, MOST, elapsed_ns=MOST,
                                            waited_ns=MOST * rank, compile_ns=MOST, count=MOST))
    scene["events"].append(make_barrier("", 0, 1, 0, waited_ns=MOST))
    scene["kernels"][0]["total"] = all_counts
    scene["kernels"][1]["samples"] = [MOST] * 48
    scene["kernels"][2].update(asked=MOST, last_asked_ms=MOST, varying=[STRIDE])
    scene["processes"][0]["start_ms"] = MOST
    return {**scene, "total": all_counts, "since_ms": MOST}


def none():
    return make_scene([], [], Events())


def refused():
    return {"now_ms": END, "result": 7, "text": "no process 7 that counts was found"}


SCENES = {make.__name__: make for make in (serving, calm, odd, dense, none, many, ranks,
                                          wrong, refused)}


def spell(name):
    """The text of a file for JITCACHE_SCENE: the same each time."""
    numbers.seed(1)
    return json.dumps([SCENES[name]()])


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in SCENES:
        sys.exit(__doc__)
    print(spell(sys.argv[1]))
