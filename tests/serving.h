// What a serving engine launches, for tests of what its launches never wait for: a kernel with
// facets and dispatch, calls of it, and a judge of the variant that served one.

#ifndef TEST_SERVING_H
#define TEST_SERVING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

// Three numbers that specialize on being multiples of 16, and four tiles within the range: 32
// variants of calls with aligned memory. Past the range there is a tile of its own.
#define SERVING_RANGE 65536
#define SERVING_KINDS 32
#define SERVING_ARGUMENTS 5

// Leaves five words behind, of which the first would be wrong if the variant knew what is not so.
static const char serving_template[] =
    "/*jitcache\n"
    "kernel: serve\n"
    "parameters:\n"
    "  - name: TILE\n"
    "    dispatch:\n"
    "      - {when: num_tokens <= 64, value: 2}\n"
    "      - {when: num_tokens <= 1024, value: 4}\n"
    "      - {when: num_tokens <= 8192, value: 8}\n"
    "      - {when: num_tokens <= 65536, value: 16}\n"
    "      - {value: 32}\n"
    "fallback: {TILE: 1}\n"
    "arguments:\n"
    "  - {name: out, type: i32*}\n"
    "  - {name: num_tokens, type: i32, facets: [{div: 16}], range: [1, 65536]}\n"
    "  - {name: width, type: i32, facets: [{div: 16}], typical: 4096}\n"
    "  - {name: stride, type: i64, facets: [{div: 16}], typical: 8192}\n"
    "  - {name: check, type: i32, do_not_specialize: true, typical: 0}\n"
    "launch: {grid: [\"min(ceildiv(num_tokens, TILE), 64)\"], block: [32]}\n"
    "*/\n"
    "#include <jitcache.cuh>\n"
    "extern \"C\" __global__ void serve(int *out, int num_tokens, int width, long long stride,\n"
    "                                 int check)\n"
    "{\n"
    "    JC_FACT(out);\n"
    "    JC_FACT(num_tokens);\n"
    "    JC_FACT(width);\n"
    "    JC_FACT(stride);\n"
    "    if (blockIdx.x == 0 && threadIdx.x == 0) {\n"
    "        out[0] = num_tokens % 16 * 10000 + width % 16 * 100 + int(stride % 16);\n"
    "        out[1] = num_tokens;\n"
    "        out[2] = JC_PARAM(TILE);\n"
    "        out[3] = int(gridDim.x);\n"
    "        out[4] = check;\n"
    "    }\n"
    "}\n";
#define SERVING_WORDS 5

struct serving_call {
    unsigned long long out; // CUdeviceptr
    int32_t num_tokens, width;
    int64_t stride;
    int32_t check; // follows from the others
    void *args[SERVING_ARGUMENTS];
};

// Four arguments of one call belong together if this follows from the first three.
static inline int32_t serving_check(int32_t num_tokens, int32_t width, int64_t stride)
{
    return (int32_t) ((uint32_t) num_tokens * 2654435761u ^ (uint32_t) width * 40503u
                      ^ (uint32_t) stride);
}

static inline void **serving_fill(struct serving_call *call, unsigned long long out,
                                  int32_t num_tokens, int32_t width, int64_t stride)
{
    *call = (struct serving_call){.out = out, .num_tokens = num_tokens, .width = width,
                                  .stride = stride,
                                  .check = serving_check(num_tokens, width, stride)};
    void *args[] = {&call->out, &call->num_tokens, &call->width, &call->stride, &call->check};
    memcpy(call->args, args, sizeof(args));
    return call->args;
}

// A call of one of the 32 kinds, whose count of tokens changes with the turn.
static inline void **serving_kind(struct serving_call *call, unsigned long long out, unsigned kind,
                                  unsigned turn)
{
    static const int32_t below[] = {0, 64, 1024, 8192};
    int32_t num_tokens = below[kind / 8 % 4] + 16 * (1 + (int32_t) (turn % 3));
    return serving_fill(call, out, num_tokens + (kind & 1 ? 0 : 5), kind & 2 ? 4096 : 4100,
                        kind & 4 ? 8192 : 8200);
}

// --- the judge -----------------------------------------------------------------------------------

enum serving_verdict {
    SERVING_WRONG, // the variant is not right for the call, or the grid not for the variant
    SERVING_RIGHT, // by another variant than the call's own
    SERVING_EXACT
};

static inline unsigned serving_tile(int32_t num_tokens)
{
    return num_tokens <= 64 ? 2 : num_tokens <= 1024 ? 4 : num_tokens <= 8192 ? 8
           : num_tokens <= SERVING_RANGE ? 16 : 32;
}

static inline unsigned serving_grid(int32_t num_tokens, unsigned tile)
{
    unsigned blocks = ((unsigned) num_tokens + tile - 1) / tile;
    return blocks < 64 ? blocks : 64;
}

// The facts of a call, or those that a specialization's lines tell, as bits.
static inline unsigned serving_facts(const struct serving_call *call)
{
    return (call->out % 16 == 0 ? 1u : 0) | (call->num_tokens % 16 == 0 ? 2u : 0)
           | (call->width % 16 == 0 ? 4u : 0) | (call->stride % 16 == 0 ? 8u : 0);
}

static inline unsigned serving_knows(const char *specialization)
{
    static const char *const lines[] = {"facet.out=align:16\n", "facet.num_tokens=div:16\n",
                                        "facet.width=div:16\n", "facet.stride=div:16\n"};
    unsigned facts = 0;
    for (unsigned i = 0; i < 4; i++)
        facts |= strstr(specialization, lines[i]) ? 1u << i : 0;
    return facts;
}

static inline enum serving_verdict serving_judge(const struct serving_call *call,
                                                 const char *specialization, unsigned grid)
{
    unsigned tile, wanted = serving_tile(call->num_tokens), facts = serving_facts(call);
    unsigned known = serving_knows(specialization);
    if (sscanf(specialization, "parameter.TILE=%u\n", &tile) != 1
        || (tile != 1 && tile != wanted) || (known & ~facts) != 0
        || grid != serving_grid(call->num_tokens, tile)
        || call->check != serving_check(call->num_tokens, call->width, call->stride))
        return SERVING_WRONG;
    return tile == wanted && known == facts ? SERVING_EXACT : SERVING_RIGHT;
}

#endif
