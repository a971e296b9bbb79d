#!/usr/bin/env python3
"""Host time of one launch with 8 arguments, for those who launch from Python: peers.py LIBRARY

Prints one JSON object, as the other benchmarks do with --json: CuPy's RawKernel, cuda.core, Triton,
jitcache (LIBRARY is libjitcache.so) and the bare driver through ctypes, each launched as its own
documentation does it. They take turns, block by block; the GPU is drained between blocks, so that
no full queue is waited for. What is not installed is left out and told on standard error.

Exit 77, a skip, without a GPU.
"""
import ctypes
import json
import os
import sys
import tempfile
import time

BLOCK_LAUNCHES = 500  # fewer than a stream queues
WARM_BLOCKS = 3
ROUNDS = 60

GRID, BLOCK = (16, 8, 1), (32, 1, 1)
COUNT, HEADS, STRIDE, SCALE, LAST = 4096, 8, 4096, 1.0, 1

# Every thread looks at all arguments and stores nothing.
SOURCE = """
extern "C" __global__ void k(const float *a, const float *b, float *c, int n, int heads,
                             long long stride, float scale, int count)
{
    if (n < 0) c[stride] = a[heads] * scale + b[count];
}
"""

TEMPLATE = """/*jitcache
kernel: k
arguments:
  - {name: a, type: const f32*}
  - {name: b, type: const f32*}
  - {name: c, type: f32*}
  - {name: n, type: i32}
  - {name: heads, type: i32}
  - {name: stride, type: i64}
  - {name: scale, type: f32}
  - {name: count, type: i32}
launch: {grid: ["ceildiv(n, 256)", heads], block: [32]}
*/
"""


def check(status, what):
    if status:
        raise RuntimeError(f"{what}: the driver answers {status}")


# --- the bare driver ------------------------------------------------------------------------------

class Driver:
    """The primary context of device 0, current here, and some memory in it."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        check(self.cuda.cuInit(0), "cuInit")
        context = ctypes.c_void_p()
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "the primary context")
        check(self.cuda.cuCtxSetCurrent(context), "the primary context")
        name = ctypes.create_string_buffer(128)
        check(self.cuda.cuDeviceGetName(name, len(name), 0), "the device's name")
        self.name = name.value.decode()
        self.memory = []
        for _ in range(3):
            pointer = ctypes.c_uint64()
            check(self.cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)),
                  "memory")
            self.memory.append(pointer.value)

    def drain(self):
        check(self.cuda.cuCtxSynchronize(), "a kernel")

    def arguments(self):
        """The storage of the 8 arguments, and the array of pointers to it."""
        values = [*map(ctypes.c_void_p, self.memory), ctypes.c_int32(COUNT),
                  ctypes.c_int32(HEADS), ctypes.c_int64(STRIDE), ctypes.c_float(SCALE),
                  ctypes.c_int32(LAST)]
        return values, (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))


class TemplateParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("file", ctypes.c_char_p), ("text", ctypes.c_char_p),
                ("text_size", ctypes.c_size_t), ("dir", ctypes.c_char_p),
                ("description", ctypes.c_void_p)]


class Launch(ctypes.Structure):
    """The first member of struct jc_launch, which is all that is wanted here."""
    _fields_ = [("function", ctypes.c_void_p), ("rest", ctypes.c_char * 8192)]


class Jitcache:
    """A kernel in a cache of its own, called through ctypes."""

    def __init__(self, library, folder):
        os.environ["JITCACHE_DIR"] = folder
        self.library = ctypes.CDLL(library)
        self.error = ctypes.create_string_buffer(4096)
        self.context, device = ctypes.c_void_p(), ctypes.c_void_p()
        template, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("jc_context_create", None, ctypes.byref(self.context))
        self.call("jc_context_device", self.context, 0, ctypes.byref(device))
        text = (TEMPLATE + SOURCE).encode()
        params = TemplateParams(size=ctypes.sizeof(TemplateParams), text=text,
                                text_size=len(text))
        self.call("jc_template_create", ctypes.byref(params), ctypes.byref(template))
        self.call("jc_kernel_create", device, template, None, ctypes.byref(self.kernel))

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments, self.error):
            raise RuntimeError(f"{name}: {self.error.value.decode()}")


def with_jitcache(jitcache, driver):
    values, pointers = driver.arguments()
    launch = jitcache.library.jc_kernel_launch
    launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    kernel = jitcache.kernel

    def block(keep=values):
        for _ in range(BLOCK_LAUNCHES):
            if launch(kernel, None, pointers, None):
                raise RuntimeError("jc_kernel_launch failed")
    return block


def with_driver(jitcache, driver):
    """cuLaunchKernel through ctypes: what ctypes itself takes."""
    values, pointers = driver.arguments()
    resolved = Launch()
    jitcache.call("jc_kernel_resolve", jitcache.kernel, None, pointers, ctypes.byref(resolved))
    launch = driver.cuda.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p] + 7 * [ctypes.c_uint] + 3 * [ctypes.c_void_p]
    function = resolved.function

    def block(keep=values):
        for _ in range(BLOCK_LAUNCHES):
            if launch(function, *GRID, *BLOCK, 0, None, pointers, None):
                raise RuntimeError("cuLaunchKernel failed")
    return block


# --- the peers ------------------------------------------------------------------------------------

def with_cupy(driver):
    import cupy
    import numpy

    kernel = cupy.RawKernel(SOURCE, "k")
    a, b, c = (cupy.zeros(1 << 18, dtype=cupy.float32) for _ in range(3))
    n, heads, last = numpy.int32(COUNT), numpy.int32(HEADS), numpy.int32(LAST)
    stride, scale = numpy.int64(STRIDE), numpy.float32(SCALE)

    def block():
        for _ in range(BLOCK_LAUNCHES):
            kernel(GRID, BLOCK, (a, b, c, n, heads, stride, scale, last))
    return f"CuPy {cupy.__version__} RawKernel", block


def with_cuda_core(driver):
    import numpy
    import cuda.core
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:  # before 1.0
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("k")
    config = LaunchConfig(grid=GRID, block=BLOCK)
    a, b, c = driver.memory
    n, heads, last = numpy.int32(COUNT), numpy.int32(HEADS), numpy.int32(LAST)
    stride, scale = numpy.int64(STRIDE), numpy.float32(SCALE)

    def block():
        for _ in range(BLOCK_LAUNCHES):
            launch(stream, config, kernel, a, b, c, n, heads, stride, scale, last)
    return f"cuda.core {cuda.core.__version__}", block


def with_triton(driver):
    import torch
    import triton

    # Its compiler reads the function's source from a file, which has to be imported.
    import peers_triton

    kernel = peers_triton.k
    a, b, c = (torch.zeros(1 << 18, device="cuda") for _ in range(3))

    def block():
        for _ in range(BLOCK_LAUNCHES):
            kernel[GRID](a, b, c, COUNT, HEADS, STRIDE, SCALE, LAST, num_warps=1)
    return f"Triton {triton.__version__}", block


TRITON_SOURCE = """
import triton
import triton.language as tl


@triton.jit
def k(a, b, c, n, heads, stride, scale, count):
    if n < 0:
        tl.store(c + stride, tl.load(a + heads) * scale + tl.load(b + count))
"""


# --- measuring ------------------------------------------------------------------------------------

def sample(block, driver):
    """Nanoseconds of one launch."""
    start = time.perf_counter_ns()
    block()
    elapsed = time.perf_counter_ns() - start
    driver.drain()
    return elapsed / BLOCK_LAUNCHES


def installed(driver):
    """(name, block) of each peer that is here and works."""
    for peer in (with_cupy, with_cuda_core, with_triton):
        try:
            name, block = peer(driver)
            block()
            driver.drain()
            yield name, block
        except ImportError as error:
            print(f"peers: {peer.__name__[5:]} is left out: {error}", file=sys.stderr)
        except Exception as error:  # of whatever kind: the others go on
            print(f"peers: {peer.__name__[5:]} failed: {type(error).__name__}: {error}",
                  file=sys.stderr)


def main():
    try:
        driver = Driver()
    except (OSError, AttributeError, RuntimeError) as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "peers_triton.py"), "w") as file:
            file.write(TRITON_SOURCE)
        sys.path.insert(0, folder)
        peers = list(installed(driver))
        jitcache = Jitcache(sys.argv[1], os.path.join(folder, "cache"))
        peers += [("jitcache through ctypes", with_jitcache(jitcache, driver)),
                  ("cuLaunchKernel through ctypes", with_driver(jitcache, driver))]
        samples = {name: [] for name, _ in peers}
        for number in range(WARM_BLOCKS + ROUNDS):
            for i in range(len(peers)):
                name, block = peers[(i + number) % len(peers)]
                taken = sample(block, driver)
                if number >= WARM_BLOCKS:
                    samples[name].append(round(taken, 2))
    print(json.dumps({"benchmark": f"peers, {driver.name}", "figures": [
        {"name": name, "unit": "ns", "limit": 0, "limit_over_control": False,
         "limit_times_control": False, "measured": values, "control": [], "again": []}
        for name, values in samples.items()]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
