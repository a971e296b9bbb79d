#include "calls.h"

// Every thread looks at all arguments and stores nothing. The headers are those of many kernels, so
// that a compile takes as long as theirs.
const char call_template[] =
    "/*jitcache\n"
    "kernel: k\n"
    "parameters:\n"
    "  - {name: TILE, type: int, dispatch: [\n"
    "     {when: tokens <= 8, value: 8}, {when: tokens <= 32, value: 16},\n"
    "     {when: tokens <= 128, value: 32}, {when: tokens <= 512, value: 64},\n"
    "     {when: tokens <= 2048, value: 128}, {when: tokens <= 8192, value: 256},\n"
    "     {when: tokens <= 32768, value: 512}, {value: 1024}]}\n"
    "arguments:\n"
    "  - {name: first, type: const f32*, align: either}\n"
    "  - {name: second, type: const f32*}\n"
    "  - {name: out, type: f32*}\n"
    "  - {name: tokens, type: i32, facets: [one, {div: 64}, {div: 16}], range: [1, 65536]}\n"
    "  - {name: heads, type: i32, typical: 8}\n"
    "  - {name: stride, type: i64}\n"
    "  - {name: scale, type: f32}\n"
    "  - {name: padded, type: i64, derive: \"align(tokens, 4)\", do_not_specialize: true}\n"
    "fallback: {TILE: 64}\n"
    "launch: {grid: [\"ceildiv(tokens, TILE)\", heads], block: [32]}\n"
    "*/\n"
    "#include <cuda_bf16.h>\n"
    "#include <cuda_fp8.h>\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void k(const float *first, const float *second, float *out,\n"
    "                               int tokens, int heads, long long stride, float scale,\n"
    "                               long long padded)\n"
    "{\n"
    "    JC_FACT(first);\n"
    "    JC_FACT(second);\n"
    "    JC_FACT(tokens);\n"
    "    static_assert(JC_PARAM(TILE) > 0, \"\");\n"
    "    if (tokens < 0)\n"
    "        out[stride] = first[heads] * scale + second[padded];\n"
    "}\n";

// SplitMix64.
static uint64_t draw(call_sequence *sequence)
{
    uint64_t word = *sequence += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

void calls_draw(call_sequence *sequence, struct step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t size = draw(sequence), kind = draw(sequence);
        uint64_t least = UINT64_C(1) << (size >> 60); // 1 to 32768
        uint64_t tokens = least + size % (least + 1);
        uint64_t slice = kind % 20;
        if ((kind >> 32) % 100 == 0)
            tokens += CALL_MAX_TOKENS;
        steps[i].tokens = (int32_t) tokens;
        steps[i].slice = slice == 0 ? SLICE_FIRST : slice == 1 ? SLICE_SECOND : SLICE_NONE;
    }
}

void call_init(struct call *call)
{
    *call = (struct call){.out = 1 << 22, .heads = 8, .stride = 4096, .scale = 1};
    call->args[0] = &call->first;
    call->args[1] = &call->second;
    call->args[2] = &call->out;
    call->args[3] = &call->tokens;
    call->args[4] = &call->heads;
    call->args[5] = &call->stride;
    call->args[6] = &call->scale;
    call->args[7] = &call->padded;
}
