"""A serving engine's kernels and what it launches, generated: 30 templates, and a trace of steps.

A trace is a file that replay.c plays. Each step has one count of tokens, long-tailed as those of
serving are, and what else differs from step to step; all kernels are launched with it. 27 kernels
are annotated so that no step compiles anything after a warm-up. Three are not, each in its own way:

  silu_and_mul        a raw count: `num_tokens` is compiled in by its value, and the warm-up is for
                      a few small ones
  dynamic_quant_fp8   a derived stride: `num_tokens` is not specialized, and `scale_stride`, which
                      follows from it, is; the warm-up is for the largest batch alone
  qk_norm             an alignment flip: `qkv_stride` is a multiple of 16 at warm-up, and in service
                      now and then is not, where a view of a wider tensor comes

What stands here of how often an argument changes is computed from the numbers alone.
"""
import random
import re

# Of each kernel: its grid, then its parameters with a rule, `@NAME`, and its arguments. Behind an
# equals sign stands what a call passes: a number, or `$` and the name of a column of the trace.
KERNELS = """
rms_norm: num_tokens
  x: const f16* = $x
  out: f16* = 0x20000000
  weight: const f16* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  hidden: i32, typical: 4096 = 4096
  epsilon: f32 = 0x358637bd
fused_add_rms_norm: num_tokens
  x: f16* = 0x10000000
  residual: f16* = 0x20000000
  weight: const f16* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  hidden: i32, typical: 4096 = 4096
  epsilon: f32 = 0x358637bd
silu_and_mul: num_tokens
  x: const f16* = $x
  out: f16* = 0x20000000
  num_tokens: i32, facets: [value], range: [1, 8] = $tokens
  hidden: i32, typical: 14336 = 14336
gelu_and_mul: num_tokens
  x: const f16* = 0x10000000
  out: f16* = 0x20000000
  num_tokens: i32, range: [1, 8192] = $tokens
  hidden: i32, typical: 14336 = 14336
rotary_embedding: num_tokens
  positions: const i64* = 0x10000000
  query: f16* = 0x20000000
  key: f16* = 0x30000000
  table: const f16* = 0x40000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  heads: i32, typical: 32 = 32
  kv_heads: i32, typical: 8 = 8
  head_size: i32, facets: [value], typical: 128 = 128
  query_stride: i64, typical: 4096 = 4096
reshape_and_cache: num_tokens
  key: const f16* = $x
  value: const f16* = 0x20000000
  key_cache: f16* = 0x30000000
  value_cache: f16* = 0x40000000
  slots: const i64* = 0x50000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  key_stride: i64, typical: 1024 = 1024
  block_size: i32, facets: [value], typical: 16 = 16
static_quant_fp8: num_tokens
  x: const f16* = 0x10000000
  out: e4m3* = 0x20000000
  scale: const f32* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  hidden: i32, typical: 4096 = 4096
dynamic_quant_fp8: num_tokens
  x: const f16* = 0x10000000
  out: e4m3* = 0x20000000
  scales: f32* = 0x30000000
  num_tokens: i32, do_not_specialize: true, typical: 8192 = $tokens
  hidden: i32, typical: 4096 = 4096
  scale_stride: i64, derive: "align(num_tokens, 4)", facets: [{div: 256}, {div: 64}, {div: 16}]
per_group_quant_fp8: num_tokens
  x: const f16* = $x
  out: e4m3* = 0x20000000
  scales: f32* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  hidden: i32, typical: 4096 = 4096
  scale_stride: i64, derive: "align(num_tokens, 4)", do_not_specialize: true
topk_softmax: num_tokens
  gating: const f32* = 0x10000000
  weights: f32* = 0x20000000
  ids: i32* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  num_experts: i32, facets: [value], typical: 64 = 64
  topk: i32, facets: [value], typical: 8 = 8
moe_align: 1
  ids: const i32* = 0x10000000
  sorted: i32* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  topk: i32, typical: 8 = 8
  num_pairs: i32, derive: num_tokens * topk, do_not_specialize: true
moe_sum: num_tokens
  x: const f16* = 0x10000000
  out: f16* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  topk: i32, facets: [value], typical: 8 = 8
  hidden: i32, typical: 4096 = 4096
moe_permute: ceildiv(num_tokens, ROWS)
  @ROWS: num_tokens <= 64: 1, num_tokens <= 1024: 4, 8
  x: const f16* = 0x10000000
  out: f16* = 0x20000000
  ids: const i32* = 0x30000000
  num_tokens: i32, range: [1, 8192] = $tokens
gather_rows: num_rows
  x: const f16* = 0x10000000
  index: const i32* = 0x20000000
  out: f16* = 0x30000000
  num_rows: i32, range: [1, 256] = $seqs
  num_tokens: i32, range: [1, 8192] = $tokens
scatter_rows: num_rows
  x: const f16* = $x
  index: const i32* = 0x20000000
  out: f16* = 0x30000000
  num_rows: i32, do_not_specialize: true, range: [1, 256] = $seqs
  columns: i32, facets: [{div: 128}, {div: 8}], typical: 4096 = 4096
embedding: num_tokens
  ids: const i32* = 0x10000000
  table: const f16* = 0x20000000
  out: f16* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  vocabulary: i32, typical: 128256 = 128256
logits_gather: num_seqs
  hidden_states: const f16* = 0x10000000
  out: f16* = 0x20000000
  num_seqs: i32, range: [1, 256] = $seqs
  hidden: i32, typical: 4096 = 4096
sample_top_p: num_seqs
  logits: f32* = 0x10000000
  out: i32* = 0x20000000
  num_seqs: i32, do_not_specialize: true, range: [1, 256] = $seqs
  vocabulary: i32, typical: 128256 = 128256
  p: f32 = 0x3f666666
apply_penalties: num_seqs
  logits: f32* = 0x10000000
  counts: const i32* = 0x20000000
  num_seqs: i32, do_not_specialize: true = $seqs
  vocabulary: i32, typical: 128256 = 128256
attention_reduce: num_seqs
  partial: const f32* = 0x10000000
  out: f16* = 0x20000000
  num_seqs: i32, do_not_specialize: true, range: [1, 256] = $seqs
  longest: i32, do_not_specialize: true, range: [1, 32768] = $longest
  partitions: i32, derive: "ceildiv(longest, 512)"
merge_attention: num_tokens
  prefix: const f16*, align: either = $prefix
  suffix: const f16* = 0x20000000
  out: f16* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
qk_norm: num_tokens
  qkv: f16* = 0x10000000
  weight: const f16* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  heads: i32, typical: 32 = 32
  qkv_stride: i64, typical: 8192 = $qkv_stride
concat_latent: num_tokens
  latent: const f16* = 0x10000000
  rope: const f16* = $x
  out: f16* = 0x30000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  latent_stride: i64, typical: 512 = 512
  rope_stride: i64, typical: 64 = 64
split_qkv: num_tokens
  qkv: const f16* = 0x10000000
  out: f16* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  qkv_stride: i64, do_not_specialize: alignment, typical: 8192 = $qkv_stride
cast_to_fp8: "ceildiv(count, 1024)"
  x: const f16* = $x
  out: e4m3* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
  count: i64, derive: num_tokens * 4096
add_bias: num_tokens
  x: f16* = 0x10000000
  bias: const f16*, align: either, facets: [{align: 16}, {align: 8}] = $bias
  num_tokens: i32, do_not_specialize: true, range: [1, 8192] = $tokens
copy_blocks: num_pairs
  from: const f16* = 0x10000000
  to: f16* = 0x20000000
  num_pairs: i32, range: [1, 512] = $pairs
  block_bytes: i64, typical: 16384 = 16384
advance_positions: 1
  positions: i64* = 0x10000000
  num_seqs: i32, facets: [one, {div: 64}, {div: 8}], range: [1, 256] = $seqs
masked_fill: num_tokens
  x: f16* = $x
  mask: const u8* = $prefix
  num_tokens: i32, do_not_specialize: true = $tokens
  stride: i64, do_not_specialize: true = $qkv_stride
residual_scale: ceildiv(num_tokens, ROWS)
  @ROWS: num_tokens % 4 == 0: 4, 1
  x: f16* = 0x10000000
  out: f16* = 0x20000000
  num_tokens: i32, do_not_specialize: true, range: [1, 4096] = $tokens
  scale: f32 = 0x3f000000
"""

GUILTY = {"silu_and_mul": "num_tokens", "dynamic_quant_fp8": "scale_stride",
          "qk_norm": "qkv_stride"}
COLUMNS = ["tokens", "seqs", "longest", "pairs", "qkv_stride", "x", "prefix", "bias"]
MAX_TOKENS = 8192
WIDTHS = {"i32": "int", "i64": "long long", "f32": "float"}


class Argument:
    def __init__(self, line):
        described, _, self.passed = line.strip().partition(" = ")
        self.name, self.fields = described.split(": ", 1)
        self.type = self.fields.split(",")[0]
        self.is_pointer = self.type.endswith("*")

    def declaration(self):
        if not self.is_pointer:
            return f"{WIDTHS[self.type]} {self.name}"
        return f"{'const ' if self.type.startswith('const') else ''}void *{self.name}"


class Kernel:
    def __init__(self, text, style):
        head, *lines = text.splitlines()
        self.name, self.grid = head.split(": ", 1)
        self.rules = [line.strip(" @") for line in lines if line.startswith("  @")]
        self.arguments = [Argument(line) for line in lines if not line.startswith("  @")]
        self.style = style

    def item(self, argument):
        """An argument as people write one: on a line, on two, or as a block."""
        fields = re.split(r", (?=[a-z_]+: )", f"name: {argument.name}, type: {argument.fields}")
        if self.style == "block":
            return "  - " + "\n    ".join(fields)
        last = ",\n     " if self.style == "folded" else ", "
        return "  - {" + ", ".join(fields[:-1]) + last + fields[-1] + "}"

    def rule(self, text):
        """`NAME: condition: value, ..., value` as a parameter."""
        name, cases = text.split(": ", 1)
        cases = [case.split(": ") for case in cases.split(", ")]
        written = [f"{{when: {case[0]}, value: {case[1]}}}" if len(case) == 2
                   else f"{{value: {case[0]}}}" for case in cases]
        return f"  - {{name: {name}, type: int, dispatch: [{', '.join(written)}]}}"

    def source(self):
        """A kernel that looks at all of its arguments, and for no count of tokens stores anything.
        """
        lines = ["/*jitcache", f"kernel: {self.name}"]
        if self.rules:
            lines += ["parameters:", *map(self.rule, self.rules), "fallback: {ROWS: 1}"]
        lines += ["arguments:", *map(self.item, self.arguments)]
        grid = self.grid.strip('"')
        lines += [f'launch: {{grid: ["{grid}"], block: [128]}}', "*/", "#include <jitcache.cuh>"]
        signature = ", ".join(argument.declaration() for argument in self.arguments)
        numbers = [argument.name for argument in self.arguments if not argument.is_pointer]
        out = next(argument.name for argument in self.arguments
                   if argument.is_pointer and not argument.type.startswith("const"))
        rows = "JC_PARAM(ROWS)" if self.rules else "1"
        count = next(name for name in numbers if name.startswith("num_"))
        lines += [f'extern "C" __global__ void {self.name}({signature})', "{"]
        lines += [f"    JC_FACT({argument.name});" for argument in self.arguments
                  if argument.type != "f32"]
        lines += [f"    if ({count} < 0)",
                  f"        static_cast<float *>({out})[blockIdx.x * {rows}] = "
                  + " + ".join(numbers) + ";", "}", ""]
        return "\n".join(lines)

    def passes(self):
        return " ".join(argument.passed for argument in self.arguments if argument.passed)


def kernels():
    found = re.findall(r"^\w.*(?:\n  .*)+", KERNELS, re.M)
    styles = ["flow", "block", "folded"]
    return [Kernel(text, styles[number % 3]) for number, text in enumerate(found)]


def steps(count, seed):
    """Rows of the trace, in the order of the columns."""
    draw = random.Random(seed)

    def tail(middle, spread, most):
        return max(1, min(most, int(draw.lognormvariate(middle, spread))))

    def seldom(one_in, usual, others):
        return draw.choice(others) if draw.randrange(one_in) == 0 else usual

    made = []
    for _ in range(count):
        tokens = tail(5, 1.7, MAX_TOKENS)
        made.append([tokens, min(tokens, tail(2.5, 1.2, 256)), tail(7, 1.2, 32768),
                     tail(2, 1.5, 512), seldom(15, 8192, [8200, 8216, 8232, 9240]),
                     seldom(20, 0x10000000, [0x10000002, 0x10000004, 0x10000008]),
                     seldom(20, 0x18000000, [0x18000004]),
                     seldom(10, 0x28000000, [0x28000008, 0x28000002])])
    return made


def write(folder, trace, names=None):
    """The templates, or those with these names, and a file that replay.c plays; `trace` has the
    steps of each device."""
    lines = ["columns " + " ".join(COLUMNS)]
    for kernel in kernels():
        if names and kernel.name not in names:
            continue
        (folder / f"{kernel.name}.cu").write_text(kernel.source())
        lines += [f"kernel {folder / kernel.name}.cu", f"pass {kernel.passes()}"]
    # Devices take turns, as ranks do.
    for row in range(max(map(len, trace))):
        lines += [f"step {device} " + " ".join(map(str, rows[row]))
                  for device, rows in enumerate(trace) if row < len(rows)]
    path = folder / "trace"
    path.write_text("\n".join(lines) + "\n")
    return path


# --- the truth -----------------------------------------------------------------------------------

def largest_divisor(number, divisors):
    return next((divisor for divisor in divisors if number % divisor == 0), 0)


def states(rows):
    """How many states each guilty argument takes: at the warm-up, and in these steps.

    A call of silu_and_mul with a slice, less aligned than declared, makes no variant, whatever its
    count of tokens is."""
    column = {name: [row[index] for row in rows] for index, name in enumerate(COLUMNS)}
    whole = {tokens for tokens, x in zip(column["tokens"], column["x"]) if x % 16 == 0}
    strides = [(tokens + 3) // 4 * 4 for tokens in column["tokens"] + [MAX_TOKENS]]
    return {
        "silu_and_mul": len(whole | set(range(1, 9))),
        "dynamic_quant_fp8": len({largest_divisor(stride, (256, 64, 16)) for stride in strides}),
        "qk_norm": len({stride % 16 == 0 for stride in column["qkv_stride"] + [8192]}),
    }
