#include "value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// --- numbers -------------------------------------------------------------------------------------

// A machine of little endian is what CUDA runs on.
static uint64_t bits_of(const void *value, unsigned bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, value, bytes < sizeof(bits) ? bytes : sizeof(bits));
    return bits;
}

static void print_integer(struct jc_buffer *text, const struct jc_type *type, const void *value)
{
    uint64_t bits = bits_of(value, type->bytes);
    unsigned unused = 64 - 8 * type->bytes;
    if (type->is_signed)
        jc_buffer_print(text, "%" PRId64, (int64_t) (bits << unused) >> unused);
    else
        jc_buffer_print(text, "%" PRIu64, bits);
}

static void print_bool(struct jc_buffer *text, const void *value)
{
    uint64_t bits = bits_of(value, 1);
    if (bits > 1)
        jc_buffer_print(text, "%" PRIu64 ", which is no bool", bits);
    else
        jc_buffer_string(text, bits ? "true" : "false");
}

// How the small floats are laid out: a sign, then these, as IEEE 754 has it.
struct layout {
    const char *name;
    unsigned exponent_bits, fraction_bits;
    bool has_infinity; // else the largest exponent is an ordinary one, but for one NaN
    int digits;        // that tell its numbers apart
};

static const struct layout layouts[] = {
    {"f16", 5, 10, true, 5},
    {"bf16", 8, 7, true, 4},
    {"e4m3", 4, 3, false, 3},
    {"e5m2", 5, 2, true, 2},
};

static double decode(const struct layout *layout, uint64_t bits)
{
    uint64_t fractions = UINT64_C(1) << layout->fraction_bits;
    uint64_t exponents = UINT64_C(1) << layout->exponent_bits;
    uint64_t fraction = bits % fractions, exponent = bits / fractions % exponents;
    double sign = bits / fractions / exponents % 2 ? -1 : 1;
    bool is_last = exponent == exponents - 1;
    if (is_last && (layout->has_infinity ? fraction > 0 : fraction == fractions - 1))
        return NAN;
    if (is_last && layout->has_infinity)
        return sign * INFINITY;
    // The smallest exponent stands for the same as the next one, without the leading 1.
    uint64_t mantissa = exponent > 0 ? fractions + fraction : fraction;
    int scale = (int) (exponent > 0 ? exponent : 1) - (int) (exponents / 2 - 1) -
                (int) layout->fraction_bits;
    return sign * ldexp((double) mantissa, scale);
}

static void print_float(struct jc_buffer *text, const struct jc_argument *argument,
                        const void *value)
{
    float single;
    double wide;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (strcmp(argument->type_name, layouts[i].name) == 0) {
            wide = decode(&layouts[i], bits_of(value, argument->type.bytes));
            jc_buffer_print(text, "%.*g", layouts[i].digits, wide);
            return;
        }
    if (argument->type.bytes == sizeof(single)) {
        memcpy(&single, value, sizeof(single));
        jc_buffer_print(text, "%.9g", (double) single);
    } else {
        memcpy(&wide, value, sizeof(wide));
        jc_buffer_print(text, "%.17g", wide);
    }
}

// --- others --------------------------------------------------------------------------------------

static void print_bytes(struct jc_buffer *text, unsigned count, const unsigned char *bytes)
{
    for (unsigned i = 0; i < count && i < JC_VALUE_BYTES; i++)
        jc_buffer_print(text, "%s%02x", i > 0 ? " " : "", bytes[i]);
    if (count > JC_VALUE_BYTES)
        jc_buffer_string(text, " ...");
}

void jc_value_print(struct jc_buffer *text, const struct jc_argument *argument, const void *value)
{
    const struct jc_type *type = &argument->type;
    switch (type->type_class) {
    case JC_CLASS_POINTER:
        jc_buffer_print(text, "0x%" PRIx64, bits_of(value, type->bytes));
        break;
    case JC_CLASS_INTEGER:
        print_integer(text, type, value);
        break;
    case JC_CLASS_BOOL:
        print_bool(text, value);
        break;
    case JC_CLASS_FLOAT:
        print_float(text, argument, value);
        break;
    case JC_CLASS_BYTES:
    case JC_CLASS_VOID:
        print_bytes(text, type->bytes, value);
        break;
    }
}
