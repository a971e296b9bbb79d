#!/usr/bin/env python3
"""The loop of serve.c in Python, through ctypes: policy `generic`, a seal, safe points: serve.py

LD_LIBRARY_PATH has to name the library's folder if the loader does not.
"""
import ctypes
import time
from ctypes import (POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int32, c_size_t,
                    c_uint64, c_void_p, sizeof)

cuda = ctypes.CDLL("libcuda.so.1")
jc = ctypes.CDLL("libjitcache.so.0")
jc.jc_context_pending.restype = jc.jc_context_active.restype = c_uint64

OK, TIMEOUT, NOT_READY = 0, 13, 17  # enum jc_result
POLICY_GENERIC = 3                  # enum jc_policy
SEAL_DEFAULT, SEAL_FROZEN = 0, 4    # enum jc_seal; the first: what JITCACHE_SEAL says, or `log`

SOURCE = b"""/*jitcache
kernel: scale_rows
arguments:
  - {name: x, type: f32*}
  - {name: num_tokens, type: i32, do_not_specialize: true, range: [1, 4096]}
  - {name: width, type: i32, typical: 256}
launch: {grid: [num_tokens], block: [128]}
*/
#include <jitcache.cuh>
extern "C" __global__ void scale_rows(float *x, int num_tokens, int width)
{
    JC_FACT(x);
    JC_FACT(width);
    for (int i = threadIdx.x; i < width; i += 128)
        x[blockIdx.x * width + i] *= 2;
}
"""


class Error(Structure):
    _fields_ = [("text", c_char * 4096)]


class TemplateParams(Structure):
    _fields_ = [("size", c_size_t), ("file", c_char_p), ("text", c_char_p),
                ("text_size", c_size_t), ("dir", c_char_p), ("description", c_void_p)]


class KernelParams(Structure):
    _fields_ = [("size", c_size_t), ("parameters", c_void_p), ("num_parameters", c_size_t),
                ("bindings", c_void_p), ("num_bindings", c_size_t), ("ranges", c_void_p),
                ("num_ranges", c_size_t), ("policy", c_int), ("max_variants", c_size_t)]


class SafePointParams(Structure):
    _fields_ = [("size", c_size_t), ("generation", c_uint64), ("streams", POINTER(c_void_p)),
                ("num_streams", c_size_t), ("budget_ns", c_uint64), ("force", c_bool),
                ("activate", c_bool)]


class SafePointReport(Structure):
    _fields_ = [("loaded", c_size_t), ("failed", c_size_t), ("left", c_size_t),
                ("elapsed_ns", c_uint64), ("longest_load_ns", c_uint64)]


class SealInfo(Structure):
    _fields_ = [("seal", c_int), ("kernels", c_size_t), ("misses", c_uint64),
                ("compiles", c_uint64), ("loads", c_uint64)]


def call(name, *arguments, fine=(OK,)):
    """Calls a function of the library; an error that is not fine becomes an exception."""
    error = Error()
    result = getattr(jc, name)(*arguments, byref(error))
    if result not in fine:
        raise RuntimeError(f"{name}: {error.text.decode()}")
    return result


def create(name, *arguments):
    """Calls a function that gives a handle, its last argument but for the error."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def call_driver(name, *arguments):
    if getattr(cuda, name)(*arguments):
        raise RuntimeError(f"{name} failed")


def open_gpu():
    """A stream, and memory for x, in the first GPU's primary context: as in PyTorch."""
    primary, stream, x = c_void_p(), c_void_p(), c_void_p()
    call_driver("cuInit", 0)
    call_driver("cuDevicePrimaryCtxRetain", byref(primary), 0)
    call_driver("cuCtxSetCurrent", primary)
    call_driver("cuStreamCreate", byref(stream), 1)
    call_driver("cuMemAlloc_v2", byref(x), c_size_t(4096 * 256 * 4))
    return stream, x


def launch(kernel, stream, *values):
    args = (c_void_p * len(values))(*map(ctypes.addressof, values))
    call("jc_kernel_launch", kernel, stream, args)


def end_step(context, device, stream, step):
    """Between two steps, where all waits for the stream anyway."""
    if jc.jc_context_pending(context) <= jc.jc_context_active(context):
        return
    streams = (c_void_p * 1)(stream)  # all that work of this device is given to
    params = SafePointParams(size=sizeof(SafePointParams), streams=streams, num_streams=1,
                             activate=True)
    report = SafePointReport()
    result = call("jc_context_safe_point", context, device, byref(params), byref(report),
                  fine=(OK, NOT_READY, TIMEOUT))
    # Not idle, or more to load than fits into the budget: the next step has a safe point too.
    if result == OK:
        print(f"step {step}: {report.loaded} loaded, {report.failed} failed;"
              f" generation {jc.jc_context_active(context)} serves")


def main():
    stream, x = open_gpu()
    context = create("jc_context_create", None)
    device = create("jc_context_device", context, 0)
    template = create("jc_template_create",
                      byref(TemplateParams(size=sizeof(TemplateParams), text=SOURCE)))
    kernel = create("jc_kernel_create", device, template,
                    byref(KernelParams(size=sizeof(KernelParams), policy=POLICY_GENERIC)))
    call("jc_kernel_warmup", kernel, None)
    call("jc_context_seal", context, SEAL_DEFAULT)

    # A hundred steps, and more until the width that nobody warmed up has a variant of its own.
    seal = SealInfo()
    jc.jc_context_seal_info(context, byref(seal))
    step, end = 0, time.monotonic() + (0 if seal.seal == SEAL_FROZEN else 60)
    while step < 100 or jc.jc_context_active(context) == 0 and time.monotonic() < end:
        launch(kernel, stream, x, c_int32(1 + step * 37 % 4096), c_int32(256))
        launch(kernel, stream, x, c_int32(1 + step * 41 % 4096), c_int32(250))
        call_driver("cuStreamSynchronize", stream)
        end_step(context, device, stream, step)
        time.sleep(0.01)  # the next requests
        step += 1

    jc.jc_context_seal_info(context, byref(seal))
    print(f"after the seal: {seal.misses} kinds of call missed, {seal.compiles} compiled,"
          f" {seal.loads} loaded")
    jc.jc_kernel_destroy(byref(kernel))
    jc.jc_template_destroy(byref(template))
    jc.jc_context_destroy(byref(context))


main()
