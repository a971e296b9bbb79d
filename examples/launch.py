#!/usr/bin/env python3
"""Launches a kernel on torch tensors, in a torch stream, through ctypes: launch.py

The library is called as C calls it; nothing of it lives in macros. Ends with status 77 where there
is no torch or no GPU. LD_LIBRARY_PATH has to name the library's folder if the loader does not.
"""
import ctypes
import sys
from ctypes import Structure, byref, c_char, c_char_p, c_size_t, c_void_p

try:
    import torch
    have_gpu = torch.cuda.is_available()
except ImportError:
    have_gpu = False
if not have_gpu:
    print("skipped: needs torch and a GPU")
    sys.exit(77)

jc = ctypes.CDLL("libjitcache.so.0")

SOURCE = b"""/*jitcache
kernel: axpy
arguments:
  - {name: y, type: f32*}
  - {name: x, type: const f32*}
  - {name: a, type: f32}
  - {name: n, type: i64, range: [1, 1048576], do_not_specialize: true}
launch: {grid: ["ceildiv(n, 256)"], block: [256]}
*/
#include <jitcache.cuh>

extern "C" __global__ void axpy(float *y, const float *x, float a, long long n)
{
    JC_FACT(y);
    JC_FACT(x);
    long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
"""


class TemplateParams(Structure):
    _fields_ = [("size", c_size_t), ("file", c_char_p), ("text", c_char_p),
                ("text_size", c_size_t), ("dir", c_char_p), ("description", c_void_p)]


class Error(Structure):
    _fields_ = [("text", c_char * 4096)]


def call(name, *arguments):
    """Calls a function of the library; its error becomes an exception."""
    error = Error()
    if getattr(jc, name)(*arguments, byref(error)):
        raise RuntimeError(f"{name}: {error.text.decode()}")


def create(name, *arguments):
    """Calls a function that gives a handle, its last argument but for the error."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


class Kernel:
    def __init__(self, device, source):
        params = TemplateParams(size=ctypes.sizeof(TemplateParams), text=source)
        self.template = create("jc_template_create", byref(params))
        self.kernel = create("jc_kernel_create", device, self.template, None)

    def warmup(self):
        call("jc_kernel_warmup", self.kernel, None)

    def __call__(self, stream, *values):
        """Each value is of the very type that the template declares; a tensor is its address."""
        values = [c_void_p(value.data_ptr()) if torch.is_tensor(value) else value
                  for value in values]
        args = (c_void_p * len(values))(*map(ctypes.addressof, values))
        call("jc_kernel_launch", self.kernel, c_void_p(stream.cuda_stream), args)

    def close(self):
        jc.jc_kernel_destroy(byref(self.kernel))
        jc.jc_template_destroy(byref(self.template))


def main():
    torch.cuda.init()
    context = create("jc_context_create", None)
    device = create("jc_context_device", context, torch.cuda.current_device())
    axpy = Kernel(device, SOURCE)
    axpy.warmup()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for count in (1, 1000, 1 << 20):
            x, y = torch.randn(2, count, device="cuda")
            expected = y + 2.5 * x
            axpy(stream, y, x, ctypes.c_float(2.5), ctypes.c_longlong(count))
            stream.synchronize()
            # The kernel rounds once for both operations.
            if not torch.allclose(y, expected, atol=1e-5):
                sys.exit(f"wrong for {count} numbers")
            print(f"{count} numbers: right")
    axpy.close()
    jc.jc_context_destroy(byref(context))


main()
