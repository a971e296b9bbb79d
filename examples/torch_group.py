#!/usr/bin/env python3
"""Ranks that talk through torch.distributed, in a group: torch_group.py [RANKS]

Starts RANKS processes, 2 by default, each with a GPU, or a share of one where there are fewer. They
warm up together, then serve in steps. A width that nobody warmed up gets a variant of its own in
the background, which all ranks load in one step and switch to in one step.

Across hosts it is the same: only init_process_group differs, as in any job of torch.distributed.
LD_LIBRARY_PATH has to name the library's folder if the loader does not. Status 77 without torch.
"""
import ctypes
import os
import sys
import tempfile
import time
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_bool, c_char, c_char_p, c_int, c_int32,
                    c_size_t, c_uint, c_uint8, c_uint64, c_void_p, pointer, sizeof)
from datetime import timedelta

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as multiprocessing
    dist.group  # a build may be without it
except (ImportError, AttributeError):
    print("skipped: no torch")
    sys.exit(77)
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("skipped: no libcuda")
    sys.exit(77)

jc = ctypes.CDLL("libjitcache.so.0")
jc.jc_group_pending.restype = c_bool

OK = 0               # enum jc_result
POLICY_GENERIC = 3   # enum jc_policy
GROUP_EQUAL = 0      # enum jc_group_mode
SEAL_DEFAULT = 0     # enum jc_seal: what JITCACHE_SEAL says, or `log`

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


# --- structs of the library ----------------------------------------------------------------------

class Error(Structure):
    _fields_ = [("text", c_char * 4096)]


class TemplateParams(Structure):
    _fields_ = [("size", c_size_t), ("file", c_char_p), ("text", c_char_p),
                ("text_size", c_size_t), ("dir", c_char_p), ("description", c_void_p)]


class KernelParams(Structure):
    _fields_ = [("size", c_size_t), ("parameters", c_void_p), ("num_parameters", c_size_t),
                ("bindings", c_void_p), ("num_bindings", c_size_t), ("ranges", c_void_p),
                ("num_ranges", c_size_t), ("policy", c_int), ("max_variants", c_size_t)]


Gather = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p)


class AllGather(Structure):
    _fields_ = [("gather", Gather), ("user", c_void_p)]


class GroupParams(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("rank", c_uint), ("ranks", c_uint),
                ("dir", c_char_p), ("launch", c_char_p),
                ("all_gather", POINTER(AllGather))]


class GroupKernel(Structure):
    _fields_ = [("kernel", c_void_p), ("device", c_void_p), ("tmpl", c_void_p),
                ("params", POINTER(KernelParams))]


class WarmupParams(Structure):
    _fields_ = [("size", c_size_t), ("kernels", POINTER(GroupKernel)), ("num_kernels", c_size_t),
                ("mode", c_int), ("timeout_ns", c_uint64), ("without_lost", c_bool),
                ("seal", c_int), ("progress", c_void_p), ("user", c_void_p)]


class WarmupReport(Structure):
    _fields_ = [("planned", c_uint64), ("loaded", c_uint64), ("compiled", c_uint64),
                ("failed", c_uint64), ("ranks", c_uint), ("ready", c_uint), ("lost", c_uint),
                ("elapsed_ns", c_uint64), ("ready_ns", c_uint64), ("waited_ns", c_uint64)]


class StepParams(Structure):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("device", c_void_p),
                ("streams", POINTER(c_void_p)), ("num_streams", c_size_t),
                ("budget_ns", c_uint64), ("force", c_bool), ("common", c_bool),
                ("patience_ns", c_uint64), ("timeout_ns", c_uint64)]


class StepReport(Structure):
    _fields_ = [("loaded", c_size_t), ("failed", c_size_t), ("left", c_size_t),
                ("activated", c_size_t), ("elapsed_ns", c_uint64), ("longest_load_ns", c_uint64)]


def call(name, *arguments):
    """Calls a function of the library; an error becomes an exception."""
    error = Error()
    if getattr(jc, name)(*arguments, byref(error)) != OK:
        raise RuntimeError(f"{name}: {error.text.decode()}")


def create(name, *arguments):
    """Calls a function that gives a handle, its last argument but for the error."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def call_driver(name, *arguments):
    if getattr(cuda, name)(*arguments):
        raise RuntimeError(f"{name} failed")


# --- the all-gather ------------------------------------------------------------------------------

def make_all_gather(ranks):
    """What jc_group_params.all_gather points to; it has to stay as long as the group does.

    It is called on a thread of the library's own, so it has a process group of its own too: what
    the engine has under way meanwhile is not mixed up with it. Gloo needs no GPU.
    """
    own = dist.new_group(backend="gloo", timeout=timedelta(minutes=10))

    def view(address, size):
        return torch.frombuffer((c_uint8 * size).from_address(address), dtype=torch.uint8)

    def gather(_user, mine, size, everyone):
        try:
            dist.all_gather(list(view(everyone, size * ranks).chunk(ranks)), view(mine, size),
                            group=own)
            return 0
        except Exception as failure:  # there is no Python above this call that could take it
            print(f"all-gather: {failure}", file=sys.stderr)
            return 1

    return AllGather(gather=Gather(gather))


# --- a rank --------------------------------------------------------------------------------------

def open_gpu(rank):
    """Its number, a stream, and memory for x, in its primary context: as in PyTorch."""
    count, gpu = c_int(), c_int()
    primary, stream, x = c_void_p(), c_void_p(), c_void_p()
    call_driver("cuInit", 0)
    call_driver("cuDeviceGetCount", byref(count))
    call_driver("cuDeviceGet", byref(gpu), rank % count.value)
    call_driver("cuDevicePrimaryCtxRetain", byref(primary), gpu)
    call_driver("cuCtxSetCurrent", primary)
    call_driver("cuStreamCreate", byref(stream), 1)
    call_driver("cuMemAlloc_v2", byref(x), c_size_t(4096 * 256 * 4))
    return gpu.value, stream, x


def warm_up(group, device, template):
    kernel_params = KernelParams(size=sizeof(KernelParams), policy=POLICY_GENERIC)
    kernels = (GroupKernel * 1)(GroupKernel(device=device, tmpl=template,
                                            params=pointer(kernel_params)))
    params = WarmupParams(size=sizeof(WarmupParams), kernels=kernels, num_kernels=1,
                          mode=GROUP_EQUAL, timeout_ns=120 * 10**9, seal=SEAL_DEFAULT)
    report = WarmupReport()
    call("jc_group_warmup", group, byref(params), byref(report))
    return c_void_p(kernels[0].kernel), report


def launch(kernel, stream, *values):
    args = (c_void_p * len(values))(*map(ctypes.addressof, values))
    call("jc_kernel_launch", kernel, stream, args)


def common_step(group, device, stream, step):
    """Between two steps: how many variants serve from here on, in all ranks."""
    streams = (c_void_p * 1)(stream)  # all that work of this device is given to
    params = StepParams(size=sizeof(StepParams), step=step, device=device, streams=streams,
                        num_streams=1, common=True)
    report = StepReport()
    call("jc_group_step", group, byref(params), byref(report))
    return report.activated


def serve(rank, group, device, kernel, stream, x):
    """At least a hundred steps, and until the width that nobody warmed up has its own variant."""
    activated, step, end = 0, 0, time.monotonic() + 60
    while True:
        # The step message: what rank 0, which schedules, tells all ranks.
        last = step >= 100 and (activated > 0 or time.monotonic() > end)
        message = torch.tensor([jc.jc_group_pending(group), last], dtype=torch.uint8)
        dist.broadcast(message, src=0)
        common, last = (bool(word) for word in message)
        if last:
            return activated
        launch(kernel, stream, x, c_int32(1 + step * 37 % 4096), c_int32(256))
        launch(kernel, stream, x, c_int32(1 + step * 41 % 4096), c_int32(250))
        call_driver("cuStreamSynchronize", stream)
        if common:
            now = torch.zeros(dist.get_world_size(), dtype=torch.int64)
            now[rank] = common_step(group, device, stream, step)
            dist.all_reduce(now)  # only to show it: an engine need not ask the others
            if rank == 0 and any(now):
                print(f"step {step}: variants that serve from here on, by rank: {now.tolist()}",
                      flush=True)
            activated += int(now[rank])
        time.sleep(0.01)  # the next requests
        step += 1


def run(rank, ranks, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    all_gather = make_all_gather(ranks)
    gpu, stream, x = open_gpu(rank)
    context = create("jc_context_create", None)
    device = create("jc_context_device", context, gpu)
    template = create("jc_template_create",
                      byref(TemplateParams(size=sizeof(TemplateParams), text=SOURCE)))
    group = create("jc_group_create", context,
                   byref(GroupParams(size=sizeof(GroupParams), name=b"torch_group", rank=rank,
                                     ranks=ranks, all_gather=pointer(all_gather))))
    kernel, report = warm_up(group, device, template)
    if rank == 0:
        print(f"warm: {report.ready} of {report.ranks} ranks, {report.loaded} variants each",
              flush=True)
    activated = serve(rank, group, device, kernel, stream, x)
    jc.jc_group_destroy(byref(group))
    jc.jc_kernel_destroy(byref(kernel))
    jc.jc_template_destroy(byref(template))
    jc.jc_context_destroy(byref(context))
    dist.destroy_process_group()
    if not activated:
        raise RuntimeError("the variant that was made in the background did not come")


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory(prefix="torch-group-") as folder:
        multiprocessing.spawn(run, args=(ranks, os.path.join(folder, "store")), nprocs=ranks)


if __name__ == "__main__":
    main()
