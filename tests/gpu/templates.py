#!/usr/bin/env python3
"""Runs the shipped kernels on a GPU and compares them with float64: templates.py COMMAND TEMPLATES

Compiles with the command, into a cache of its own, and launches through libcuda. Every variant,
specialized and generic, in both scale formats: random inputs, powers of two, maxima below 1e-10,
all ones, slices that are not aligned, padding rows, token counts around every multiple of four, and
outputs that are filled beforehand, so that a byte too many or too few shows. Scales have to be
exact, FP8 values at most one step away where rounding is a tie in float32.

Exit 77, a skip, without torch or without a GPU of compute capability 8.9 or newer.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    have_gpu = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9)
except ImportError:
    have_gpu = False
if not have_gpu:
    print("skipped: needs torch and a GPU of compute capability 8.9 or newer")
    sys.exit(77)

COMMAND, TEMPLATES = sys.argv[1:]
POISON8, POISON32 = 0xA5, -7
HEADS, HEADS_PER_GROUP, HEAD, ROPE, POSITIONS = 64, 8, 512, 64, 4096
FORMATS = ["fp32", "ue8m0"]


# --- compiling and launching ----------------------------------------------------------------------

def jitcache(*arguments, binary=False):
    done = subprocess.run([COMMAND, *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout if binary else done.stdout.decode()


def check(status):
    if status:
        raise RuntimeError(f"the driver answers {status}")


def kernels(name):
    """Yields (format, generic, function) for each variant of a template."""
    cuda = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")  # makes the context
    major, minor = torch.cuda.get_device_capability()
    jitcache("prewarm", f"{TEMPLATES}/{name}.cu", "--arch", f"{major}.{minor}",
             "--param", "scale_format=" + ",".join(FORMATS))
    for record in json.loads(jitcache("ls", "--kernel", name, "--json"))["records"]:
        if record["kind"] != "variant":
            continue
        text = jitcache("show", record["key"], "--key")
        with tempfile.NamedTemporaryFile() as file:
            jitcache("show", record["key"], "--cubin", "-o", file.name)
            cubin = open(file.name, "rb").read()
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(module), cubin))
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))

        def launch(grid, *arguments, function=function):
            pointers = [ctypes.cast(ctypes.pointer(each), ctypes.c_void_p) for each in arguments]
            check(cuda.cuLaunchKernel(function, *grid, 32, 4, 1, 0, None,
                                      (ctypes.c_void_p * len(pointers))(*pointers), None))
            torch.cuda.synchronize()

        scale_format = next(each for each in FORMATS if f"scale_format={each}\n" in text)
        yield scale_format, "facet." not in text, launch


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


i32, i64 = ctypes.c_int, ctypes.c_longlong


# --- what is right --------------------------------------------------------------------------------

def scales_of(x):
    """The smallest powers of two with 448 * s >= the maximum of each 128, exactly."""
    largest = np.abs(x).reshape(*x.shape[:-1], -1, 128).max(-1)
    fraction, exponent = np.frexp(np.maximum(largest, float(np.float32(1e-10))) / 448)
    return np.where(fraction == 0.5, 2.0 ** (exponent - 1), 2.0 ** exponent)


def e4m3(x):
    """The nearest e4m3 numbers, ties to even, and the step between neighbours."""
    size = np.minimum(np.abs(x), 448.0)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(size, 2.0 ** -9))), -6) - 3)
    return np.sign(x) * np.minimum(np.round(size / step) * step, 448.0), step


def judge(what, x, quantized, scales):
    expected = scales_of(x)
    assert np.array_equal(expected, scales), f"{what}: scales differ"
    values, step = e4m3(x / np.repeat(expected, 128, -1))
    assert (np.abs(values - quantized) <= step * 1.01).all(), f"{what}: over one step away"
    share = np.mean(values != quantized)
    assert share < 1e-4, f"{what}: {share:.1e} of the values are a step away"


def read_scales(buffer, rows, groups, padded, tokens, scale_format):
    """[rows * groups][tokens] as float64; checks the padding and what lies behind."""
    words = rows * groups if scale_format == "fp32" else rows * (groups // 4)
    assert (buffer[words * padded:] == POISON32).all(), "scales are written past the end"
    if scale_format == "fp32":
        scales = buffer[:words * padded].view(torch.float32).double().cpu().numpy()
    else:
        packed = buffer[:words * padded].cpu().numpy().view(np.uint32).reshape(words, 1, padded)
        exponent = packed >> np.arange(0, 32, 8, dtype=np.uint32).reshape(1, 4, 1) & 255
        scales = np.where(exponent == 0, 0.0, 2.0 ** (exponent.astype(float) - 127))
    scales = scales.reshape(rows * groups, padded)
    assert (scales[:, tokens:] == 0).all(), "padding rows are not zero"
    return scales[:, :tokens]


def outputs(values, words):
    return (torch.full((values + 64,), POISON8, dtype=torch.uint8, device="cuda"),
            torch.full((words + 16,), POISON32, dtype=torch.int32, device="cuda"))


def read_values(buffer, count):
    assert (buffer[count:] == POISON8).all(), "values are written past the end"
    return buffer[:count].view(torch.float8_e4m3fn).double().cpu().numpy()


def maybe_slice(tensor, sliced):
    """The same values, one element into a larger buffer if `sliced`."""
    if not sliced:
        return tensor
    larger = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
    larger[1:] = tensor.reshape(-1)
    return larger[1:]


# --- the kernels ----------------------------------------------------------------------------------

def make_heads(kind, tokens):
    shape = (tokens, HEADS, HEAD)
    if kind == "ones":
        return torch.ones(shape, dtype=torch.bfloat16, device="cuda")
    if kind == "tiny":
        return torch.randn(shape, device="cuda").to(torch.bfloat16) * 1e-14
    if kind == "powers":
        heads = (torch.rand(shape, device="cuda") * 0.9).to(torch.bfloat16)
        heads[..., ::128] = 448.0 if tokens % 2 else 1.0
        return heads
    return torch.randn(shape, dtype=torch.bfloat16, device="cuda") * 2.0 ** (tokens % 16 - 8)


def test_rope(scale_format, generic, launch, kind, tokens):
    groups, padded = HEADS // HEADS_PER_GROUP, (tokens + 3) // 4 * 4
    heads = make_heads(kind, tokens)
    positions = torch.randint(0, POSITIONS, (tokens + 1,), device="cuda")[tokens % 2:][:tokens]
    angles = torch.rand(POSITIONS, ROPE // 2, device="cuda") * (0 if kind == "ones" else 6.28)
    table = torch.cat([torch.cos(angles), torch.sin(angles)], 1).contiguous()
    words = HEADS_PER_GROUP * (4 if scale_format == "fp32" else 1)
    values, scales = outputs(tokens * HEADS * HEAD, groups * words * padded)
    group_values = tokens * HEADS_PER_GROUP * HEAD
    launch((padded // 4, HEADS, 1), pointer(maybe_slice(heads, generic and tokens % 2)),
           pointer(positions), pointer(table), pointer(values), pointer(scales), i32(tokens),
           i32(HEADS), i64(HEADS * HEAD), i64(HEAD), i64(group_values), i64(words * padded),
           i64(padded))

    x = heads.double().cpu().numpy()
    cosine, sine = np.split(table.double().cpu().numpy()[positions.cpu().numpy()][:, None], 2, -1)
    even, odd = x[..., HEAD - ROPE::2].copy(), x[..., HEAD - ROPE + 1::2].copy()
    x[..., HEAD - ROPE::2] = even * cosine + odd * sine
    x[..., HEAD - ROPE + 1::2] = odd * cosine - even * sine
    quantized = read_values(values, tokens * HEADS * HEAD)
    quantized = quantized.reshape(groups, tokens, -1).swapaxes(0, 1).reshape(x.shape)
    if kind == "ones" and scale_format == "ue8m0":
        assert (scales[:groups * words * padded].reshape(-1, padded)[:, :tokens]
                == 0x77777777).all()
    found = read_scales(scales, HEADS, 4, padded, tokens, scale_format)
    judge(f"{kind}, {tokens} tokens", x, quantized, found.T.reshape(tokens, HEADS, 4))


def test_silu(scale_format, generic, launch, tokens, hidden):
    padded, rows = (tokens + 3) // 4 * 4, (hidden + 511) // 512
    buffer = torch.randn(tokens, 2 * hidden, dtype=torch.bfloat16, device="cuda")
    words = hidden // 128 if scale_format == "fp32" else rows
    values, scales = outputs(tokens * hidden, words * padded)
    launch((padded // 4, rows, 1), pointer(maybe_slice(buffer, generic and tokens % 2)),
           pointer(values), pointer(scales), i32(tokens), i32(hidden), i64(2 * hidden), i64(padded))

    gate, up = np.split(buffer.double().cpu().numpy(), 2, -1)
    x = gate / (1 + np.exp(-gate)) * up
    quantized = read_values(values, tokens * hidden).reshape(x.shape)
    if scale_format == "fp32":
        found = read_scales(scales, hidden // 128, 1, padded, tokens, scale_format)
    else:
        found = read_scales(scales, rows, 4, padded, tokens, scale_format)
        assert (found[hidden // 128:] == 0).all(), "groups past the end are not zero"
    judge(f"{tokens} x {hidden}", x, quantized, found[:hidden // 128].T)


def main():
    torch.manual_seed(1)
    counts = [*range(1, 41), 127, 128, 129, 130, 513]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["JITCACHE_DIR"] = folder
        for scale_format, generic, launch in kernels("fused_inv_rope_fp8_quant"):
            for tokens in counts:
                test_rope(scale_format, generic, launch, "random", tokens)
            for kind in ("powers", "tiny", "ones"):
                for tokens in (1, 5, 6, 128):
                    test_rope(scale_format, generic, launch, kind, tokens)
            print(f"fused_inv_rope_fp8_quant {scale_format} {'generic' if generic else ''}: right")
        for scale_format, generic, launch in kernels("silu_mul_fp8_quant"):
            for tokens in (1, 2, 3, 4, 5, 31, 127, 130):
                for hidden in (128, 384, 640, 2048) if generic else (2048, 4096):
                    test_silu(scale_format, generic, launch, tokens, hidden)
            print(f"silu_mul_fp8_quant {scale_format} {'generic' if generic else ''}: right")


main()
