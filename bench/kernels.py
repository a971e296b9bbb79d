#!/usr/bin/env python3
"""The shipped kernels beside a copy and a peer: kernels.py LIBRARY TEMPLATES [--quick]

Prints one JSON object, as the other benchmarks do with --json; what is seen meanwhile goes to
standard error. LIBRARY is libjitcache.so, TEMPLATES the folder of the kernels. All run as nodes of
CUDA graphs, in one process and in turns:

  jitcache      the kernel, twice, for what equal things differ by; with programmatic dependent
                launch; and at some sizes with packed scales
  Triton        a kernel of the published structure, one warp for a token and head, without and with
                programmatic dependent launch
  memcpy        a copy as a memcpy node, of as many bytes as the kernel reads and writes
  copy kernel   the same by threads that copy 16 bytes at a time

Each node has inputs and outputs of its own, until the L2 has been passed several times over. What
the kernels write is compared with float64. One that fails, or writes something else, is told with
its reason; the others go on. Status 1 then. --quick: fewer sizes.

Exit 77, a skip, without a GPU, torch or Triton.
"""
import ctypes
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p

try:
    import torch
    import triton
    missing = None if torch.cuda.is_available() else "torch finds no GPU"
except ImportError as error:
    torch, missing = None, str(error)

WARM_ROUNDS, ROUNDS = 2, 11
LIMIT_S = 200        # what is not measured by then is left out and told
L2_TIMES = 4         # what a replay touches, in L2s
REPLAY_BYTES = 2e9   # a replay moves about as much: half a millisecond
MAX_NODES = 4096
LARGE_COPY = 1 << 31  # bytes
POSITIONS = 65536
POISON = 0xff        # no number in e4m3, and none as f32
CHECKED_TOKENS = 64

HEAD, ROPE, CHUNK = 512, 64, 128
NOPE = HEAD - ROPE
HEADS_PER_GROUP = 8
SCALE_BYTES = {"fp32": 4, "ue8m0": 1}


def align(count, step):
    return (count + step - 1) // step * step


# --- what runs beside it --------------------------------------------------------------------------

# Its compiler reads the functions' source from a file, which has to be imported.
TRITON_SOURCE = """
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


# One warp has one head of one token; the grid's first dimension is padded, as the scales are.
@triton.jit(do_not_specialize=["num_tokens", "scale_stride_k"])
def inverse_rope_quantize(o, positions, angles, fp8_out, scale_out, num_tokens, o_stride_token,
                          o_stride_head, fp8_stride_group, scale_stride_group, scale_stride_k,
                          HEADS_PER_GROUP: tl.constexpr, HEAD: tl.constexpr, NOPE: tl.constexpr,
                          CHUNK: tl.constexpr, PROGRAMMATIC: tl.constexpr):
    if PROGRAMMATIC:
        gdc_launch_dependents()
        gdc_wait()
    CHUNKS: tl.constexpr = HEAD // CHUNK
    PAIRS: tl.constexpr = (HEAD - NOPE) // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    group = head // HEADS_PER_GROUP
    in_group = head % HEADS_PER_GROUP
    rows = in_group * CHUNKS + tl.arange(0, CHUNKS)
    scales_at = scale_out + group * scale_stride_group + rows * scale_stride_k + token
    if token >= num_tokens:
        tl.store(scales_at, tl.zeros((CHUNKS,), dtype=tl.float32))
        return

    at = tl.arange(0, HEAD)
    row = o + token * o_stride_token + head * o_stride_head
    x = tl.load(row + at).to(tl.float32)

    # Each of a pair takes the other one from memory once more; the sign decides the direction.
    turned = at >= NOPE
    pair = tl.where(turned, (at - NOPE) // 2, 0)
    row_of_angles = angles + tl.load(positions + token) * (2 * PAIRS)
    cosine = tl.load(row_of_angles + pair, mask=turned, other=1.0)
    sine = tl.load(row_of_angles + PAIRS + pair, mask=turned, other=0.0)
    other = tl.load(row + (at ^ 1), mask=turned, other=0.0).to(tl.float32)
    x = x * cosine + tl.where(at % 2 == 0, other, -other) * sine

    chunks = tl.reshape(x, (CHUNKS, CHUNK))
    largest = tl.maximum(tl.max(tl.abs(chunks), axis=1), 1e-10)
    scale = tl.exp2(tl.ceil(tl.log2(largest * (1.0 / 448.0))))
    scaled = tl.clamp(chunks / tl.reshape(scale, (CHUNKS, 1)), -448.0, 448.0)
    to = fp8_out + group * fp8_stride_group + (token * HEADS_PER_GROUP + in_group) * HEAD
    tl.store(to + at, tl.reshape(scaled, (HEAD,)).to(fp8_out.dtype.element_ty))
    tl.store(scales_at, scale)
"""

COPY_TEMPLATE = """/*jitcache
kernel: copy_words
parameters:
  - name: at_once
    dispatch:
      - {when: words <= 131072, value: 1}
      - {value: 4}
fallback: {at_once: 4}
arguments:
  - {name: from, type: const void*}
  - {name: to, type: void*}
  - {name: words, type: i64, typical: 1048576}
launch: {grid: ["ceildiv(words, 256 * at_once)"], block: [256]}
*/

#include <jitcache.cuh>

extern "C" __global__ void __launch_bounds__(256)
copy_words(const void *__restrict__ from, void *__restrict__ to, long long words)
{
    constexpr int AT_ONCE = JC_PARAM(at_once);
    const uint4 *source = static_cast<const uint4 *>(from);
    uint4 *target = static_cast<uint4 *>(to);
    long long first = blockIdx.x * 256ll * AT_ONCE + threadIdx.x;
    uint4 held[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (first + i * 256 < words)
            held[i] = source[first + i * 256];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        if (first + i * 256 < words)
            target[first + i * 256] = held[i];
}
"""

EMPTY_TEMPLATE = """/*jitcache
kernel: nothing
arguments:
  - {name: unused, type: i64, typical: 1}
launch: {grid: [1], block: [32], programmatic: %s}
*/

extern "C" __global__ void nothing(long long unused)
{
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;");
}
"""


# --- jitcache through ctypes ----------------------------------------------------------------------

class TemplateParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("file", c_char_p), ("text", c_char_p), ("text_size", c_size_t),
                ("dir", c_char_p), ("description", c_void_p)]


class Argument(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_char_p), ("do_not_specialize", c_char_p),
                ("facets", c_void_p), ("num_facets", c_size_t), ("has_facets", c_bool),
                ("align", c_char_p), ("derive", c_char_p), ("range", c_char_p),
                ("typical", c_char_p), ("line", c_uint)]


class Description(ctypes.Structure):
    """The first members of struct jc_description, which are all that is wanted here."""
    _fields_ = [("size", c_size_t), ("kernel", c_char_p), ("name_expression", c_char_p),
                ("arch", c_char_p), ("state", c_char_p), ("options", c_void_p),
                ("num_options", c_size_t), ("include", c_void_p), ("num_include", c_size_t),
                ("parameters", c_void_p), ("num_parameters", c_size_t),
                ("arguments", POINTER(Argument)), ("num_arguments", c_size_t)]


class Setting(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class KernelParams(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("parameters", POINTER(Setting)), ("num_parameters", c_size_t),
                ("bindings", c_void_p), ("num_bindings", c_size_t), ("ranges", c_void_p),
                ("num_ranges", c_size_t), ("policy", c_int), ("max_variants", c_size_t)]


class Variant(ctypes.Structure):
    _fields_ = [("generic", c_bool), ("specialization", c_char_p), ("key", c_char * 16),
                ("function", c_void_p), ("registers", c_int), ("static_shared", c_uint),
                ("local", c_uint)]


class Launch(ctypes.Structure):
    """struct jc_launch, with room for what `arguments` points to."""
    _fields_ = [("function", c_void_p), ("grid", c_uint * 3), ("block", c_uint * 3),
                ("cluster", c_uint * 3), ("shared", c_uint), ("cooperative", c_bool),
                ("programmatic", c_bool), ("empty", c_bool), ("workspace", ctypes.c_uint64),
                ("arguments", c_void_p), ("variant", POINTER(Variant)), ("rest", c_char * 8192)]


class Jitcache:
    """A context with a cache of its own."""

    def __init__(self, library, folder, device):
        os.environ["JITCACHE_DIR"] = folder
        self.library = ctypes.CDLL(library)
        self.library.jc_template_description.restype = POINTER(Description)
        self.library.jc_kernel_launch.argtypes = [c_void_p] * 4
        self.error = ctypes.create_string_buffer(4096)
        context = self.create("jc_context_create", None)
        self.device = self.create("jc_context_device", context, device)

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments, self.error):
            raise RuntimeError(f"{name}: {self.error.value.decode()}")

    def create(self, name, *arguments):
        handle = c_void_p()
        self.call(name, *arguments, byref(handle))
        return handle

    def template(self, file=None, text=None):
        params = TemplateParams(size=ctypes.sizeof(TemplateParams), file=file and file.encode(),
                                text=text and text.encode())
        return self.create("jc_template_create", byref(params))


class Kernel:
    """A kernel with these parameters, all of its variants loaded."""

    TYPES = {b"i32": ctypes.c_int32, b"i64": ctypes.c_int64, b"f32": ctypes.c_float}

    def __init__(self, jitcache, template, **parameters):
        self.jitcache = jitcache
        description = jitcache.library.jc_template_description(template).contents
        self.passed = [(one.name.decode(), one.type) for one in
                       description.arguments[:description.num_arguments] if not one.derive]
        given = [Setting(name.encode(), value.encode()) for name, value in parameters.items()]
        settings = (Setting * len(given))(*given)
        params = KernelParams(size=ctypes.sizeof(KernelParams), parameters=settings,
                              num_parameters=len(given))
        self.kernel = jitcache.create("jc_kernel_create", jitcache.device, template, byref(params))
        jitcache.call("jc_kernel_warmup", self.kernel, None)

    def arguments(self, values):
        """What a call passes, in the template's order: the storage and the pointers to it."""
        unknown = [name for name, _ in self.passed if name not in values]
        if unknown:
            raise RuntimeError(f"the template's argument {unknown[0]} has no value here: give it"
                               " one where this benchmark makes the values of a call")
        storage = [(c_void_p if kind.endswith(b"*") else self.TYPES[kind])(values[name])
                   for name, kind in self.passed]
        return storage, (c_void_p * len(storage))(*map(ctypes.addressof, storage))

    def prepare(self, pointers):
        """Makes the variant of a call, and says which that is."""
        self.jitcache.call("jc_kernel_prepare", self.kernel, pointers)
        launch = Launch()
        self.jitcache.call("jc_kernel_resolve", self.kernel, None, pointers, byref(launch))
        variant = launch.variant.contents
        return {"specialization": variant.specialization.decode(), "generic": variant.generic,
                "registers": variant.registers, "local": variant.local,
                "grid": list(launch.grid), "block": list(launch.block),
                "programmatic": launch.programmatic}

    def launch(self, pointers, stream):
        if self.jitcache.library.jc_kernel_launch(self.kernel, stream, pointers,
                                                  ctypes.addressof(self.jitcache.error)):
            raise RuntimeError(f"jc_kernel_launch: {self.jitcache.error.value.decode()}")


class Kernels:
    """The kernels that are measured, each made once."""

    def __init__(self, jitcache, templates):
        self.jitcache, self.templates = jitcache, templates

    @functools.cache
    def shipped(self, name, **parameters):
        file = os.path.join(self.templates, f"{name}.cu")
        return Kernel(self.jitcache, self.jitcache.template(file=file), **parameters)

    @functools.cache
    def own(self, text):
        return Kernel(self.jitcache, self.jitcache.template(text=text))


# --- memory ---------------------------------------------------------------------------------------

class Memory:
    """Two pieces of device memory, out of which each size cuts the inputs and outputs of its sets:
    random bf16 numbers, and room for what is written."""

    def __init__(self, shapes):
        generator = torch.Generator(device="cuda").manual_seed(1)
        self.input = torch.empty(max(shape.sets * shape.in_stride for shape in shapes),
                                 dtype=torch.uint8, device="cuda")
        self.output = torch.empty(max(shape.sets * shape.out_stride for shape in shapes),
                                  dtype=torch.uint8, device="cuda")
        for piece in self.input.view(torch.bfloat16).split(1 << 28):
            piece.normal_(generator=generator)
        self.positions = torch.randint(
            POSITIONS, (max(shape.sets * shape.positions_stride for shape in shapes),),
            dtype=torch.int64, device="cuda", generator=generator)
        angles = torch.rand(POSITIONS, ROPE // 2, device="cuda", generator=generator) * 6.2831853
        self.angles = torch.cat((angles.cos(), angles.sin()), dim=1)


def l2_bytes():
    return getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0) or 60 << 20


# --- sizes ----------------------------------------------------------------------------------------

class Shape:
    """One size of one kernel. The bytes are those of a call, read and written."""

    positions_stride = 0
    memory = None  # for all, once their needs are known

    def __init__(self, kernel, tokens, across, counted, in_stride, out_stride):
        self.kernel, self.tokens, self.across, self.bytes = kernel, tokens, across, counted
        self.in_stride, self.out_stride = align(in_stride, 256), align(out_stride, 256)
        self.padded = align(tokens, 4)
        self.sets = max(2, -(-L2_TIMES * l2_bytes() // counted))
        times = max(1, min(int(REPLAY_BYTES // (self.sets * counted)), MAX_NODES // self.sets))
        self.nodes = self.sets * times

    def __str__(self):
        return f"{self.kernel} {self.tokens} x {self.across}"

    def input(self, number, size):
        """The first bytes of a set's input."""
        return self.memory.input[number * self.in_stride:][:size]

    def output(self, number, begin, size):
        return self.memory.output[number * self.out_stride + begin:][:size]

    def copy_of(self, number):
        """What a copy of as many bytes writes and reads: half of them each."""
        size = self.bytes // 2
        return self.output(number, 0, size), self.input(number, size)

    def check_copy(self):
        if not all(torch.equal(*self.copy_of(number)) for number in (0, self.sets - 1)):
            return "the copy is not equal"
        return None

    def candidates(self, kernels, peer):
        """All that is measured at this size."""
        return [Memcpy(self), CopyKernel(self, kernels)]


def exponent_of(largest):
    """Of the smallest power of two s with 448 * s >= largest, which is float64."""
    fraction, exponent = torch.frexp(largest.clamp(min=1e-10) / 448)
    return exponent - (fraction == 0.5).int()


def compare(x, got, got_exponent, doubt, rare):
    """What is wrong with numbers `got`, e4m3 as bytes, and the exponents of their scales; or None.

    x is float64 [..., groups, 128]. `doubt` is how far, relatively, float32 may take a group's
    largest magnitude for another one; `rare` is the share of numbers that it may round the other
    way.
    """
    largest = x.abs().amax(dim=-1)
    low, high = exponent_of(largest * (1 - doubt)), exponent_of(largest * (1 + doubt))
    bad = (got_exponent != low) & (got_exponent != high)
    if bad.any():
        at = bad.nonzero()[0].tolist()
        return (f"{int(bad.sum())} of {bad.numel()} scales are wrong; the first at {at}: 2^"
                f"{int(got_exponent[tuple(at)])} and not 2^{int(low[tuple(at)])}")
    scaled = x * torch.exp2(-got_exponent.double()).unsqueeze(-1)
    wanted = scaled.float().clamp(-448, 448).to(torch.float8_e4m3fn).float()
    got = got.view(torch.float8_e4m3fn).float()
    other = got != wanted
    near = (got - wanted).abs() <= wanted.abs() / 8 + 2.0 ** -9  # false for what is no number
    if not near.all():
        at = (~near).nonzero()[0].tolist()
        return (f"{int((~near).sum())} of {near.numel()} numbers are wrong; the first at {at}:"
                f" {float(got[tuple(at)])} and not {float(wanted[tuple(at)])}")
    share = float(other.float().mean())
    return None if share <= rare else f"{share:.2e} of the numbers are rounded otherwise"


def exponents(scales, scale_format):
    """Exponents of scales [tokens, rows]: one for each f32 number, four for each packed word. What
    is no power of two gives one that is never right."""
    if scale_format == "ue8m0":
        return scales.contiguous().view(torch.uint8).int() - 127
    fraction, exponent = torch.frexp(scales.double())
    return torch.where(fraction == 0.5, exponent - 1, 9999)


def some_of(tokens):
    """Tokens to look at, the first and the last among them."""
    return torch.linspace(0, tokens - 1, min(tokens, CHECKED_TOKENS), device="cuda").long()


class QuantizedShape(Shape):
    """What both kernels have: inputs of bf16, outputs of e4m3, scales with the token contiguous."""

    def __init__(self, kernel, tokens, across, input_size, numbers):
        self.numbers = numbers  # e4m3, of all tokens
        written = {name: numbers + numbers // CHUNK * size for name, size in SCALE_BYTES.items()}
        self.bytes_of = {name: input_size + size for name, size in written.items()}
        padded = numbers + numbers // tokens // CHUNK * 4 * align(tokens, 4)
        half = self.bytes_of["fp32"] // 2
        super().__init__(kernel, tokens, across, self.bytes_of["fp32"], max(input_size, half),
                         max(padded, half))

    def fp8(self, number):
        return self.output(number, 0, self.numbers)

    def scales(self, number, scale_format):
        """[rows, padded tokens], as f32 or as words."""
        rows = self.numbers // self.tokens // CHUNK
        kind = torch.float32
        if scale_format == "ue8m0":
            rows, kind = -(-rows // 4), torch.int32
        size = rows * self.padded * 4
        return self.output(number, self.numbers, size).view(kind).view(rows, self.padded)

    def check(self, scale_format, doubt, rare):
        """What is wrong with the outputs of the first and the last set; or None."""
        for number in (0, self.sets - 1):
            wrong = self.wrong_with(number, scale_format, doubt, rare)
            if wrong:
                return f"set {number}: {wrong}"
        return None

    def wrong_with(self, number, scale_format, doubt, rare):
        left = int((self.fp8(number) == POISON).sum())
        if left:
            return f"{left} numbers are not written, or no numbers"
        scales = self.scales(number, scale_format)
        if scales[:, self.tokens:].any():
            return "scales of padding are not 0"
        at = some_of(self.tokens)
        x, got = self.expected(number, at), self.looked_at(number, at)
        got_exponent = exponents(scales[:, at].t(), scale_format)[:, :x[0].numel() // CHUNK]
        return compare(x.reshape(len(at), -1, CHUNK), got.reshape(len(at), -1, CHUNK), got_exponent,
                       doubt, rare)

    def shipped(self, kernels, doubt, rare, with_ue8m0, **parameters):
        """The candidates that are kernels of the templates."""
        for name, scale_format, programmatic in [
                ("jitcache", "fp32", "false"), ("jitcache again", "fp32", "false"),
                ("jitcache programmatic", "fp32", "true"), ("jitcache ue8m0", "ue8m0", "false")]:
            if scale_format == "ue8m0" and not with_ue8m0:
                continue
            make = functools.partial(kernels.shipped, self.kernel, scale_format=scale_format,
                                     programmatic=programmatic, **parameters)
            check = functools.partial(self.check, scale_format, doubt, rare)
            yield Shipped(name, self, make, check, self.bytes_of[scale_format])


class RopeShape(QuantizedShape):
    """fused_inv_rope_fp8_quant: tokens x heads."""

    def __init__(self, tokens, heads):
        self.heads, self.groups = heads, heads // HEADS_PER_GROUP
        numbers = tokens * heads * HEAD
        super().__init__("fused_inv_rope_fp8_quant", tokens, heads, 2 * numbers, numbers)
        self.positions_stride = align(tokens, 32)

    def o(self, number):
        return self.input(number, 2 * self.numbers).view(torch.bfloat16)

    def positions(self, number):
        return self.memory.positions[number * self.positions_stride:][:self.tokens]

    def values(self, number):
        """Of the arguments of a call."""
        return {"o": self.o(number).data_ptr(),
                "positions": self.positions(number).data_ptr(),
                "cos_sin_cache": self.memory.angles.data_ptr(),
                "fp8_out": self.fp8(number).data_ptr(),
                "scale_out": self.scales(number, "fp32").data_ptr(), "num_tokens": self.tokens,
                "heads": self.heads, "o_stride_token": self.heads * HEAD, "o_stride_head": HEAD}

    def expected(self, number, at):
        """The numbers to be quantized, in float64."""
        x = self.o(number).view(self.tokens, self.heads, HEAD)[at].double()
        angles = self.memory.angles[self.positions(number)[at]].double().unsqueeze(1)
        cosine, sine = angles[..., :ROPE // 2], angles[..., ROPE // 2:]
        even, odd = x[..., NOPE::2].clone(), x[..., NOPE + 1::2].clone()
        x[..., NOPE::2] = even * cosine + odd * sine
        x[..., NOPE + 1::2] = odd * cosine - even * sine
        return x

    def looked_at(self, number, at):
        """The e4m3 numbers of these tokens, ordered as the input is."""
        return self.fp8(number).view(self.groups, self.tokens, -1)[:, at].transpose(0, 1)

    def candidates(self, kernels, peer):
        # Only what is turned can be taken for another magnitude.
        turned = torch.zeros(self.heads, HEAD // CHUNK, dtype=torch.float64, device="cuda")
        turned[:, -1] = 1e-6
        return [*self.shipped(kernels, turned.flatten(), 1e-4, self.tokens in (64, 1024, 16384),
                              heads_per_group=str(HEADS_PER_GROUP)),
                Peer("triton", self, peer, False), Peer("triton programmatic", self, peer, True),
                *super().candidates(kernels, peer)]


class SiluShape(QuantizedShape):
    """silu_mul_fp8_quant: tokens x hidden."""

    def __init__(self, tokens, hidden):
        self.hidden = hidden
        super().__init__("silu_mul_fp8_quant", tokens, hidden, 4 * tokens * hidden, tokens * hidden)

    def rows(self, number):
        return self.input(number, 4 * self.numbers).view(torch.bfloat16).view(self.tokens, -1)

    def values(self, number):
        return {"input": self.rows(number).data_ptr(), "fp8_out": self.fp8(number).data_ptr(),
                "scale_out": self.scales(number, "fp32").data_ptr(), "num_tokens": self.tokens,
                "hidden": self.hidden, "input_stride": 2 * self.hidden}

    def expected(self, number, at):
        gate, up = self.rows(number)[at].double().split(self.hidden, dim=1)
        return gate * torch.sigmoid(gate) * up

    def looked_at(self, number, at):
        return self.fp8(number).view(self.tokens, self.hidden)[at]

    def candidates(self, kernels, peer):
        # The exponential function is an approximation.
        return [*self.shipped(kernels, 1e-5, 1e-3, (self.tokens, self.hidden) == (4096, 4096)),
                *super().candidates(kernels, peer)]


class EmptyShape(Shape):
    """Kernels that do nothing: the least that a node takes."""

    def __init__(self):
        super().__init__("empty", 0, 0, 1, 0, 0)
        self.sets, self.nodes, self.bytes = 1, 2000, 0

    def candidates(self, kernels, peer):
        return [Launched(name, self, functools.partial(kernels.own, EMPTY_TEMPLATE % programmatic),
                         lambda number: {"unused": 1})
                for name, programmatic in (("empty", "false"), ("empty programmatic", "true"))]


class LargeCopy(Shape):
    """What memory is good for."""

    def __init__(self):
        super().__init__("copy", 0, 0, 2 * LARGE_COPY, LARGE_COPY, LARGE_COPY)
        self.sets, self.nodes = 1, 2


# --- what is measured -----------------------------------------------------------------------------

class Candidate:
    """One thing that is measured at one size. `prepare` may compile; `enqueue` launches on set
    `number` into torch's current stream."""

    variant = None

    def __init__(self, name, shape, counted=None):
        self.name, self.shape = name, shape
        self.bytes = shape.bytes if counted is None else counted
        self.graph, self.us, self.why = None, [], None

    def prepare(self):
        pass

    def check(self):
        return None

    def give_up(self, error):
        """Not measured any further, with the reason."""
        self.why = f"{type(error).__name__}: {error}"
        self.graph, self.us = None, []
        print(f"kernels: {self.shape}: {self.name} failed: {self.why}", file=sys.stderr)

    def report(self):
        told = {"us": [round(us, 4) for us in self.us] or None, "bytes": self.bytes}
        if self.why:
            told["why"] = self.why[:1000]
        if self.variant:
            told["variant"] = self.variant
        return told


class Launched(Candidate):
    """A kernel through jitcache: what makes it, and the values that a call on a set passes."""

    def __init__(self, name, shape, make, values, counted=None):
        super().__init__(name, shape, counted)
        self.make, self.values = make, values

    def prepare(self):
        self.kernel = self.make()
        self.calls = [self.kernel.arguments(self.values(number))
                      for number in range(self.shape.sets)]
        self.variant = self.kernel.prepare(self.calls[0][1])

    def enqueue(self, number):
        self.kernel.launch(self.calls[number][1], torch.cuda.current_stream().cuda_stream)


class Shipped(Launched):
    def __init__(self, name, shape, make, check, counted):
        super().__init__(name, shape, make, shape.values, counted)
        self.check = check


class Peer(Candidate):
    """The Triton kernel."""

    def __init__(self, name, shape, kernel, is_programmatic):
        super().__init__(name, shape)
        self.kernel, self.is_programmatic = kernel, is_programmatic

    def prepare(self):
        if isinstance(self.kernel, Exception):
            raise self.kernel
        self.tensors = [(self.shape.o(number), self.shape.positions(number),
                         self.shape.memory.angles,
                         self.shape.fp8(number).view(torch.float8_e4m3fn),
                         self.shape.scales(number, "fp32")) for number in range(self.shape.sets)]
        self.enqueue(0)

    def enqueue(self, number):
        shape = self.shape
        options = {"launch_pdl": True} if self.is_programmatic else {}
        self.kernel[(shape.padded, shape.heads)](
            *self.tensors[number], shape.tokens, shape.heads * HEAD, HEAD,
            shape.tokens * HEADS_PER_GROUP * HEAD, HEADS_PER_GROUP * HEAD // CHUNK * shape.padded,
            shape.padded, HEADS_PER_GROUP=HEADS_PER_GROUP, HEAD=HEAD, NOPE=NOPE, CHUNK=CHUNK,
            PROGRAMMATIC=self.is_programmatic, num_warps=1, num_stages=1, **options)

    def check(self):
        # Its logarithm is an approximation too.
        return self.shape.check("fp32", doubt=1e-6, rare=1e-4)


class Memcpy(Candidate):
    def __init__(self, shape):
        super().__init__("memcpy", shape)
        self.check = shape.check_copy

    def prepare(self):
        self.pairs = [self.shape.copy_of(number) for number in range(self.shape.sets)]

    def enqueue(self, number):
        to, source = self.pairs[number]
        to.copy_(source, non_blocking=True)


class CopyKernel(Launched):
    def __init__(self, shape, kernels):
        super().__init__("copy kernel", shape, functools.partial(kernels.own, COPY_TEMPLATE),
                         self.call_on)
        self.check = shape.check_copy

    def call_on(self, number):
        to, source = self.shape.copy_of(number)
        return {"from": source.data_ptr(), "to": to.data_ptr(), "words": len(to) // 16}


# --- measuring ------------------------------------------------------------------------------------

class Lost(Exception):
    """The GPU answers nothing but an error any more, as after a bad access."""


def capture(candidate, stream):
    """A graph of the shape's nodes, each after the one before."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for node in range(candidate.shape.nodes):
                candidate.enqueue(node % candidate.shape.sets)
        except Exception:
            end_capture(graph)
            raise
        graph.capture_end()
    return graph


def end_capture(graph):
    """Of one that failed, and that may tell so once more."""
    try:
        graph.capture_end()
    except Exception as error:
        print(f"kernels: a capture that failed: {error}", file=sys.stderr)


def make_ready(candidate, stream):
    """Captures a candidate, and looks at what a replay writes."""
    shape = candidate.shape
    with torch.cuda.stream(stream):
        candidate.prepare()
    torch.cuda.synchronize()
    candidate.graph = capture(candidate, stream)
    shape.memory.output[:shape.sets * shape.out_stride].fill_(POISON)
    torch.cuda.synchronize()
    replay(candidate, stream)
    torch.cuda.synchronize()
    wrong = candidate.check()
    if wrong:
        raise RuntimeError(f"wrong outputs: {wrong}")


def replay(candidate, stream):
    with torch.cuda.stream(stream):
        candidate.graph.replay()


def guarded(candidate, step, *arguments):
    """Does a step for a candidate; if that fails the candidate is given up, and not the others."""
    try:
        step(candidate, *arguments)
    except Exception as error:
        candidate.give_up(error)
        try:
            torch.cuda.synchronize()
        except Exception as lost:
            raise Lost(f"after {candidate.name}: {lost}") from lost


def sample(candidate, stream):
    """Events around a replay that comes right after another one, so that no start is waited for."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    replay(candidate, stream)
    begin.record(stream)
    replay(candidate, stream)
    end.record(stream)
    return begin, end


def do_rounds(candidates, stream):
    """Each candidate once a round, another one first each time."""
    for number in range(WARM_ROUNDS + ROUNDS):
        turn = number % len(candidates)
        events = [(candidate, sample(candidate, stream))
                  for candidate in candidates[turn:] + candidates[:turn]]
        torch.cuda.synchronize()
        for candidate, (begin, end) in events if number >= WARM_ROUNDS else []:
            candidate.us.append(begin.elapsed_time(end) * 1000 / candidate.shape.nodes)


def measure(shape, candidates, stream):
    for candidate in candidates:
        guarded(candidate, make_ready, stream)
    ready = [candidate for candidate in candidates if candidate.graph]
    if ready:
        try:
            do_rounds(ready, stream)
        except Exception as error:
            raise Lost(f"while {shape} was measured: {error}") from error


def tell(shape, candidates, begin):
    """A line of what was measured, for those who wait."""
    said = []
    for candidate in candidates:
        if candidate.us:
            us = statistics.median(candidate.us)
            rate = f" {candidate.bytes / us / 1e6:.2f} TB/s" if candidate.bytes else ""
            said.append(f"{candidate.name} {us:.2f} us{rate}")
    print(f"{time.monotonic() - begin:5.1f} s {shape}, {shape.sets} sets, {shape.nodes} nodes: "
          f"{'; '.join(said)}", file=sys.stderr, flush=True)


def part_of(shape, candidates):
    return {"part": "kernel speed", "kernel": shape.kernel, "tokens": shape.tokens,
            "across": shape.across, "bytes": shape.bytes, "sets": shape.sets, "nodes": shape.nodes,
            "candidates": {candidate.name: candidate.report() for candidate in candidates}}


def measure_all(shapes, kernels, peer):
    """The parts, and whether all went well."""
    stream, begin = torch.cuda.Stream(), time.monotonic()
    parts, went_well = [], True
    for shape in shapes:
        if time.monotonic() - begin > LIMIT_S:
            print(f"kernels: {LIMIT_S} s are over; not measured: {shape} and on", file=sys.stderr)
            return parts, False
        candidates = shape.candidates(kernels, peer)
        try:
            measure(shape, candidates, stream)
        except Lost as error:
            print(f"kernels: the GPU is lost: {error}", file=sys.stderr)
            return parts, False
        tell(shape, candidates, begin)
        parts.append(part_of(shape, candidates))
        went_well &= not any(candidate.why for candidate in candidates)
    return parts, went_well


# --- all of it ------------------------------------------------------------------------------------

def sizes(quick):
    """What is measured, in this order."""
    tokens = (1, 64, 1024, 4096) if quick else (1, 16, 64, 128, 256, 512, 1024, 4096, 16384)
    silu_tokens = (64, 4096) if quick else (1, 16, 64, 1024, 4096, 16384)
    return ([LargeCopy(), EmptyShape()] +
            [RopeShape(count, heads) for heads in ((64,) if quick else (64, 128))
             for count in tokens] +
            [SiluShape(count, hidden) for hidden in ((4096,) if quick else (2048, 4096, 7168))
             for count in silu_tokens])


def make_peer(folder):
    """The Triton kernel, or why there is none."""
    with open(os.path.join(folder, "kernels_triton.py"), "w") as file:
        file.write(TRITON_SOURCE)
    sys.path.insert(0, folder)
    try:
        import kernels_triton
        return kernels_triton.inverse_rope_quantize
    except Exception as error:  # of whatever kind: the others go on
        return error


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--quick"]
    if len(arguments) != 2:
        sys.exit("usage: kernels.py LIBRARY TEMPLATES [--quick]")
    if missing:
        print(f"skipped: {missing}", file=sys.stderr)
        return 77
    torch.cuda.init()
    shapes = sizes("--quick" in sys.argv)
    Shape.memory = Memory(shapes)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
        jitcache = Jitcache(arguments[0], os.path.join(folder, "cache"),
                            torch.cuda.current_device())
        parts, went_well = measure_all(shapes, Kernels(jitcache, arguments[1]), make_peer(folder))
    print(json.dumps({"benchmark": f"kernels, {torch.cuda.get_device_name()}, torch "
                                   f"{torch.__version__}, Triton {triton.__version__}",
                      "figures": [], "parts": parts}))
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main())
