// The calls of tp_engine: how many tokens each step has, and how its tensors lie in memory.

#include "tp_engine.h"

// SplitMix64.
static uint64_t draw(uint64_t *state)
{
    uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ (word >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94d049bb133111eb);
    return word ^ (word >> 31);
}

// From 2^low to 2^high - 1, as many of each size between two powers of two.
static int32_t draw_size(uint64_t *state, unsigned low, unsigned high)
{
    uint64_t least = UINT64_C(1) << (low + draw(state) % (high - low));
    return (int32_t) (least + draw(state) % least);
}

// Nine steps of ten decode a batch of requests, a token each; the others take in a new prompt, or a
// chunk of one, and of these every sixth a long one.
static int32_t draw_tokens(uint64_t *state)
{
    uint64_t kind = draw(state) % 60;
    if (kind == 0)
        return draw_size(state, 12, 14);
    return kind < 6 ? draw_size(state, 8, 12) : draw_size(state, 0, 8);
}

void tp_draw_calls(uint64_t seed, unsigned odd, struct tp_call *calls, size_t count)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++) {
        calls[i] = (struct tp_call){.tokens = draw_tokens(&state)};
        uint64_t layout = draw(&state);
        if (layout % 100 >= odd)
            continue;
        // A view of a larger tensor, say. Each of the four wants a variant of its own.
        layout = (layout >> 32) % 4;
        calls[i].o_row_padding = layout == 0 || layout == 2 ? TP_PADDING : 0;
        calls[i].o_head_padding = layout == 1 || layout == 2 ? TP_PADDING : 0;
        calls[i].input_padding = layout == 3 ? TP_PADDING : 0;
    }
}
